"""The command line: one file a noun, loaded when it is asked for."""

from stoplist.cli.main import main

__all__ = ["main"]
