"""Imports of opt-outs from files. Source: docs/interface.md section D12."""
