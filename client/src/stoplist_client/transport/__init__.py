"""Performs the effects of flows over HTTP, blocking or on an event loop. Only these modules import httpx2."""
