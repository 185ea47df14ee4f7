"""Opt-outs as people see them: list, search, history, entry by hand, daily counts, submissions and their reversal."""
