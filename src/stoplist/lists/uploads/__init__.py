"""Files of opt-outs that people upload on the pages, and the work of servers on imports.

Source: docs/interface.md section D12, On the pages.
"""
