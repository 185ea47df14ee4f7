"""Proof that partners have what was recorded. Source: docs/interface.md section D14."""
