"""`stoplist feeds`: the feeds of a deployment on PostgreSQL get a database of their own, or come back.

The operator makes the copy, with the tools of PostgreSQL. Source: docs/interface.md section D1, Feeds apart.
"""
