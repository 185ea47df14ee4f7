"""Opt-outs as staff see them: list, search, history, manual entry, daily counts, submissions and their reversal."""
