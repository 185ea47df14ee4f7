"""The append-only audit: who did what, to what, when and from where.

Only stoplist.rights.retention deletes entries: those that a deployment no longer keeps.
"""
