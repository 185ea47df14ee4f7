"""The append-only audit: who did what, to what, when and from where."""
