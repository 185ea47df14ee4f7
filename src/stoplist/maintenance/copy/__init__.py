"""The two ends of `stoplist copy`: a SQLite file that is read, and a PostgreSQL database that is filled by COPY.

Beside the drivers, not in them: whole tables go through, whichever there are, so the statements are made from the
catalogue. Source: docs/interface.md section D9.
"""
