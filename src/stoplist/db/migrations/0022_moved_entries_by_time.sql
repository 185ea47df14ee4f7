-- oldest program: 0.1.0
-- Which entries were moved from outboxes is forgotten with the old entries of the audit (docs/decisions/0039-feeds-apart.md).

CREATE INDEX moved_entries_added ON moved_entries (added_ms);
