"""The tests: their folders mirror src/stoplist; house/ holds the checks of the repository itself, e2e/ real processes."""
