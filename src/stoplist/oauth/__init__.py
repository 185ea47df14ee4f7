"""Credentials, client authentication, grants and bearer tokens."""
