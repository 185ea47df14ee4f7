"""Append-only: who did what, to what, when and from where."""
