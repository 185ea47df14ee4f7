"""Exports: the records of an organization and channel as a file. Source: docs/interface.md section D12."""
