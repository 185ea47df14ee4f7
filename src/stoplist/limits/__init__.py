"""How often a client may ask."""
