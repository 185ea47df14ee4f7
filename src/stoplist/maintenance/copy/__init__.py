"""`stoplist copy`: reads a SQLite file and fills a PostgreSQL database by COPY.

Not part of the drivers: it copies whole tables, whichever exist, with statements generated from the catalogue.
Source: docs/interface.md section D9.
"""
