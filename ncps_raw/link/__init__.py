"""The link check: one stream of bytes each way, timed at both ends."""
