"""Checks of the repository itself: its layers, what its documents claim, and what may not be in it."""
