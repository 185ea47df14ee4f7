"""The server process: HTTP on the wire, TLS, start and stop, workers."""
