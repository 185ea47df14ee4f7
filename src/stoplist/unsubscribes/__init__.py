"""Opt-outs as partners use them: submit, look up, and follow every change."""
