"""Sign-in, and the pages of a person's own account."""
