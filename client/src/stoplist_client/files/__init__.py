"""Files that only their owner can read, and locks between processes."""
