"""Organizations, and their groups: the kinds of message that people can opt out of separately."""
