"""Organizations and the groups of messages that people can leave."""
