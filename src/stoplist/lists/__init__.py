"""Lists in and out: imports of opt-outs from files, and exports to files. Source: docs/interface.md section D12."""
