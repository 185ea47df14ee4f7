"""The tests. Their folders mirror src/stoplist; house/ checks the repository itself, e2e/ runs real processes."""
