-- oldest program: 0.1.0
-- The reversal of an import is a submission per part, and lists show it as one line.

-- import_id: the import that was reversed; part_of: the first submission of that reversal, which stands for all of them.
ALTER TABLE reversals ADD COLUMN import_id TEXT;
ALTER TABLE reversals ADD COLUMN part_of TEXT;
CREATE INDEX reversals_part_of ON reversals (feed_id, part_of) WHERE part_of IS NOT NULL;
