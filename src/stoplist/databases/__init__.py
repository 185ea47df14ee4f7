"""The databases of a deployment: one, or one for the accounts and one for the feeds."""
