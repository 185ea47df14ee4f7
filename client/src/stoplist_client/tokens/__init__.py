"""The tokens of a key, and the stores that keep them."""
