"""Servers that tests and benchmarks need beside them, found on the machine or brought by a wheel."""
