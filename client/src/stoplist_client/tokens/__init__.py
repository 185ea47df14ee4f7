"""The tokens of a key, and where they are kept."""
