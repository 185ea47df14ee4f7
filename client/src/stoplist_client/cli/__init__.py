"""The command `stoplist-client`: one file a command, main.py has the list."""

from stoplist_client.cli.main import main

__all__ = ["main"]
