"""Ground floor: packets in, handshakes out. Importing this package never needs libpcap."""
