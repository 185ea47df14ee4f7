"""The command `stoplist-client`. Each command has its own file in commands/; main.py lists them."""

from stoplist_client.cli.main import main

__all__ = ["main"]
