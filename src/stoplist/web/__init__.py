"""The HTTP edge: parses a request, calls one operation, renders the answer."""
