"""The people who use the admin pages: who they are, what they may, and how they prove it."""
