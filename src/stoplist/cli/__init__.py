"""The command line: one file per command, loaded when the command is used."""

from stoplist.cli.main import main

__all__ = ["main"]
