"""Top floor: makes the load and talks to the person."""

__version__ = "0.1.0"
