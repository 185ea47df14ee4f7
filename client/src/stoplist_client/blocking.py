"""Marks the blocking client. The mirror checks for it without importing the client, and with it httpx2."""


class BlockingClient:
    """Base class of Client, but not of AsyncClient."""
