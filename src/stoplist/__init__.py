"""Stoplist: the list of people who asked you to stop."""

__version__ = "0.2.0"
