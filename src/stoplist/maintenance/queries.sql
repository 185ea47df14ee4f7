-- What a restore has lost: the numbers of groups of which a feed has records, submissions, imports or readers.

-- name: group_numbers_of_records
-- unsubscribes_seq, after :after. `last` is NULL if there are no more. Earlier versions are of the same groups.
SELECT MAX(seq) AS last, CAST(json_group_array(DISTINCT group_no) AS TEXT) AS numbers  -- only: sqlite
SELECT MAX(seq) AS last, CAST(json_agg(DISTINCT group_no) AS TEXT) AS numbers  -- only: postgresql
FROM (
    SELECT seq, group_no FROM unsubscribes WHERE feed_id = :feed_id AND seq > :after ORDER BY seq LIMIT :most
) page

-- name: group_numbers_of_submissions
-- Primary key, after :after.
SELECT MAX(submission_id) AS last, CAST(json_group_array(DISTINCT group_no) AS TEXT) AS numbers  -- only: sqlite
SELECT MAX(submission_id) AS last, CAST(json_agg(DISTINCT group_no) AS TEXT) AS numbers  -- only: postgresql
FROM (
    SELECT submission_id, group_no FROM submissions
    WHERE feed_id = :feed_id AND submission_id > :after ORDER BY submission_id LIMIT :most
) page

-- name: group_numbers_of_imports
-- Primary key: a row per import.
SELECT group_no FROM imports WHERE feed_id = :feed_id

-- name: group_numbers_of_readers
-- Primary key: a row per reader, in its order, so that no bitmap of it is made.
SELECT group_no FROM feed_followers WHERE feed_id = :feed_id AND client_id > '' ORDER BY client_id, group_no
