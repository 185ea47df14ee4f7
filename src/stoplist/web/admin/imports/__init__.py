"""Screens of imports: files of opt-outs that people upload."""
