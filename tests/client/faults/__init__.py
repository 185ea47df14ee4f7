"""The clients behind a proxy that drops, delays, cuts and invents answers, in front of a real server."""
