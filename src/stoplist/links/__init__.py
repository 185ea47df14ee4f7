"""Opt-out links, by which people opt out themselves: their keys, and what a click does."""
