"""Performs what flows ask for over HTTP, blocking or on an event loop. Nothing else knows httpx2."""
