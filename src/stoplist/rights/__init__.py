"""The rights of a person: to be forgotten, and to stay barred."""
