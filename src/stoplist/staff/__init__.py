"""The people who use the admin pages: their accounts, their rights, and how they sign in."""
