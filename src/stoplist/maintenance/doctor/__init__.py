"""Checks of an installation, one module per group. Source: docs/interface.md section D9."""
