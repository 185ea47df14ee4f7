-- Citus: the distributed tables, and the statements that distribute one. For PostgreSQL only; the distribute_* scripts
-- run without parameters. Source: the reference of Citus 13, utility functions.

-- name: citus
SELECT to_regclass('pg_dist_partition') IS NOT NULL  -- only: postgresql
       AND EXISTS (SELECT 1 FROM pg_proc WHERE proname = 'create_distributed_table') AS is_there,  -- only: postgresql
       EXISTS (SELECT 1 FROM pg_available_extensions WHERE name = 'citus') AS is_installed  -- only: postgresql

-- name: distributed
-- partmethod h: by the hash of a column. Tables with the same colocationid keep the rows of a feed on one node.
SELECT c.relname AS table_name, p.colocationid AS group_number  -- only: postgresql
FROM pg_dist_partition p JOIN pg_class c ON c.oid = p.logicalrelid  -- only: postgresql
WHERE p.partmethod = 'h' AND c.relnamespace = CAST(current_schema() AS regnamespace)  -- only: postgresql

-- name: distribute_feeds
-- The first table begins a co-location group of its own.
SELECT create_distributed_table('feeds', 'feed_id', colocate_with => 'none')

-- name: distribute_unsubscribes
SELECT create_distributed_table('unsubscribes', 'feed_id', colocate_with => 'feeds')

-- name: distribute_unsubscribe_versions
SELECT create_distributed_table('unsubscribe_versions', 'feed_id', colocate_with => 'feeds')

-- name: distribute_submissions
SELECT create_distributed_table('submissions', 'feed_id', colocate_with => 'feeds')

-- name: distribute_feed_days
SELECT create_distributed_table('feed_days', 'feed_id', colocate_with => 'feeds')

-- name: distribute_reversals
SELECT create_distributed_table('reversals', 'feed_id', colocate_with => 'feeds')

-- name: forget_local_rows
-- Moved rows remain on the coordinator, invisible, until they are truncated. Does nothing if there are none.
SELECT truncate_local_data_after_distributing_table('feeds');
SELECT truncate_local_data_after_distributing_table('unsubscribes');
SELECT truncate_local_data_after_distributing_table('unsubscribe_versions');
SELECT truncate_local_data_after_distributing_table('submissions');
SELECT truncate_local_data_after_distributing_table('feed_days');
SELECT truncate_local_data_after_distributing_table('reversals')
