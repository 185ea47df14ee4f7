"""The clients through a proxy that drops, loses, cuts and answers by itself, before a real server."""
