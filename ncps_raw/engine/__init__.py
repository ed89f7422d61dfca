"""The engines: the same conversation, driven in different ways."""
