"""First floor: handshakes and connection records in, answers out."""
