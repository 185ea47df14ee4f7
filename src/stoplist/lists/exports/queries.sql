-- The states of a feed at its change :head, by number, without a transaction that lasts. Every statement starts with
-- feed_id; unsubscribes/queries.sql explains the form of these statements. Tests check each plan on tables without
-- statistics. One row with one text, so that a thread reads it in one C call.

-- name: current_states
-- Primary key of feeds; unsubscribes_seq after :after, up to :head. head_now: if it is :head, nothing has changed since,
-- and these are all the states.
SELECT (SELECT f.head_seq FROM feeds f WHERE f.feed_id = :feed_id) AS head_now,
CAST(json_group_array(json_array(  -- only: sqlite
CAST(json_agg(json_build_array(  -- only: postgresql
    seq, id, address, group_no, status, reason, source, occurred_ms, recorded_ms
)) AS TEXT) AS states
FROM (
SELECT * FROM (  -- only: postgresql
SELECT seq, id, address, group_no, status, reason, source, occurred_ms, recorded_ms FROM unsubscribes
WHERE feed_id = :feed_id AND seq > :after AND seq <= :head ORDER BY seq LIMIT :most
) page ORDER BY seq LIMIT (SELECT CAST(:most AS BIGINT))  -- only: postgresql
) states

-- name: states_changed_since
-- unsubscribe_versions_seq after :after, up to :until, then the primary keys once per version: the versions that stood at
-- :head, because the next change of their record is a later one. last_seq and examined: of the versions examined.
-- seq + 0: keeps PostgreSQL from using the index on (feed_id, seq), which would read the versions of the whole feed.
SELECT MAX(seq) AS last_seq, COUNT(*) AS examined,
CAST(json_group_array(json_array(  -- only: sqlite
CAST(json_agg(json_build_array(  -- only: postgresql
    seq, id, address, group_no, status, reason, source, occurred_ms, recorded_ms
)) FILTER (WHERE now_seq > :head AND is_superseded = 0) AS TEXT) AS states
FROM (
SELECT w.seq, n.id, w.address, w.group_no, w.status, w.reason, w.source, w.occurred_ms, w.recorded_ms, n.seq AS now_seq,
CASE WHEN EXISTS (
    SELECT 1 FROM unsubscribe_versions b
    -- include: of_record row=b address=w.address group_no=w.group_no
      AND b.seq + 0 > w.seq AND b.seq + 0 <= :head
) THEN 1 ELSE 0 END AS is_superseded
FROM (
SELECT * FROM (  -- only: postgresql
SELECT * FROM unsubscribe_versions WHERE feed_id = :feed_id AND seq > :after AND seq <= :until ORDER BY seq LIMIT :most
) page ORDER BY seq LIMIT (SELECT CAST(:most AS BIGINT))  -- only: postgresql
) w
CROSS JOIN unsubscribes n  -- only: sqlite
CROSS JOIN LATERAL (SELECT n.* FROM unsubscribes n  -- only: postgresql
-- include: of_record row=n address=w.address group_no=w.group_no
OFFSET 0) n  -- only: postgresql
) examined

-- name: all_states
-- unsubscribes_seq and unsubscribe_versions_seq after :after, up to :head, then primary keys once per state: every state
-- that records ever had, and who sent it.
SELECT
CAST(json_group_array(json_array(  -- only: sqlite
CAST(json_agg(json_build_array(  -- only: postgresql
    seq, id, address, group_no, status, reason, source, occurred_ms, recorded_ms, submission_id, actor_kind, actor_id
)) AS TEXT) AS states
FROM (
SELECT page.seq, COALESCE(page.id, n.id) AS id, page.address, page.group_no, page.status, page.reason, page.source,
       page.occurred_ms, page.recorded_ms, page.submission_id, s.actor_kind, s.actor_id
FROM (
    SELECT * FROM (
        SELECT * FROM (  -- only: postgresql
        SELECT seq, id, address, group_no, status, reason, source, occurred_ms, recorded_ms, submission_id
        FROM unsubscribes WHERE feed_id = :feed_id AND seq > :after AND seq <= :head ORDER BY seq LIMIT :most
        ) page ORDER BY seq LIMIT (SELECT CAST(:most AS BIGINT))  -- only: postgresql
    ) standing
    UNION ALL
    SELECT * FROM (
        SELECT * FROM (  -- only: postgresql
        SELECT seq, NULL AS id, address, group_no, status, reason, source, occurred_ms, recorded_ms, submission_id
        FROM unsubscribe_versions WHERE feed_id = :feed_id AND seq > :after AND seq <= :head ORDER BY seq LIMIT :most
        ) page ORDER BY seq LIMIT (SELECT CAST(:most AS BIGINT))  -- only: postgresql
    ) superseded
    ORDER BY seq LIMIT :most
) page
LEFT JOIN unsubscribes n  -- only: sqlite
    ON n.feed_id = :feed_id AND n.address = page.address AND n.group_no = page.group_no  -- only: sqlite
LEFT JOIN submissions s ON s.feed_id = :feed_id AND s.submission_id = page.submission_id  -- only: sqlite
LEFT JOIN LATERAL (SELECT n.* FROM unsubscribes n  -- only: postgresql
    WHERE n.feed_id = :feed_id AND n.address = page.address AND n.group_no = page.group_no  -- only: postgresql
      AND (n.address, n.group_no) >= (page.address, page.group_no)  -- only: postgresql
    OFFSET 0) n ON true  -- only: postgresql
LEFT JOIN LATERAL (SELECT s.* FROM submissions s  -- only: postgresql
    WHERE s.feed_id = :feed_id AND s.submission_id = page.submission_id OFFSET 0) s ON true  -- only: postgresql
) states
