-- oldest program: 0.1.0
-- An import may be reversed by several processes, one after another or at once. The last of them says what all of them took back.

-- corrected: how many of the records that the reversal changed had no former state; NULL: an older program wrote the row.
ALTER TABLE reversals ADD COLUMN corrected INTEGER;
