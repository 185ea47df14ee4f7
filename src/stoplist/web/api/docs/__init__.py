"""The reference for people: a page made of the description alone, so that both say the same."""
