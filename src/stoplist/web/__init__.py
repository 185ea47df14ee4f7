"""The HTTP layer: parses a request, calls one operation, and renders the answer."""
