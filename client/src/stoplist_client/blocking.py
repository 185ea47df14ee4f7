"""Marks the client whose methods block, for the mirror, which is used without one and must not import httpx2."""


class BlockingClient:
    """Base class of Client, and not of AsyncClient."""
