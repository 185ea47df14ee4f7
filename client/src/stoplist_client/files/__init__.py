"""Files that their owner alone can read, and locks over processes."""
