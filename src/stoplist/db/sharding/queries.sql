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

-- name: distribute_imports
SELECT create_distributed_table('imports', 'feed_id', colocate_with => 'feeds')

-- name: distribute_import_parts
SELECT create_distributed_table('import_parts', 'feed_id', colocate_with => 'feeds')

-- name: distribute_uploads
SELECT create_distributed_table('uploads', 'feed_id', colocate_with => 'feeds')

-- name: distribute_upload_pieces
SELECT create_distributed_table('upload_pieces', 'feed_id', colocate_with => 'feeds')

-- name: distribute_import_rejects
SELECT create_distributed_table('import_rejects', 'feed_id', colocate_with => 'feeds')

-- name: distribute_import_work
SELECT create_distributed_table('import_work', 'feed_id', colocate_with => 'feeds')

-- name: distribute_feed_followers
SELECT create_distributed_table('feed_followers', 'feed_id', colocate_with => 'feeds')

-- name: distribute_feed_positions
SELECT create_distributed_table('feed_positions', 'feed_id', colocate_with => 'feeds')

-- name: distribute_erasures
SELECT create_distributed_table('erasures', 'feed_id', colocate_with => 'feeds')

-- name: distribute_confirmed_ranges
SELECT create_distributed_table('confirmed_ranges', 'feed_id', colocate_with => 'feeds')

-- name: distribute_feed_outbox
SELECT create_distributed_table('feed_outbox', 'feed_id', colocate_with => 'feeds')

-- name: copy_to_nodes
-- Does nothing for a table that was copied before.
SELECT create_reference_table(to_regclass(name)) FROM (VALUES ('deployment'), ('copy_progress')) tables (name)
WHERE NOT EXISTS (SELECT 1 FROM pg_dist_partition p WHERE p.logicalrelid = to_regclass(name))

-- name: forget_local_rows
-- Moved rows remain on the coordinator, invisible, until they are truncated. Does nothing if there are none.
SELECT truncate_local_data_after_distributing_table('feeds');
SELECT truncate_local_data_after_distributing_table('unsubscribes');
SELECT truncate_local_data_after_distributing_table('unsubscribe_versions');
SELECT truncate_local_data_after_distributing_table('submissions');
SELECT truncate_local_data_after_distributing_table('feed_days');
SELECT truncate_local_data_after_distributing_table('reversals');
SELECT truncate_local_data_after_distributing_table('imports');
SELECT truncate_local_data_after_distributing_table('import_parts');
SELECT truncate_local_data_after_distributing_table('uploads');
SELECT truncate_local_data_after_distributing_table('upload_pieces');
SELECT truncate_local_data_after_distributing_table('import_rejects');
SELECT truncate_local_data_after_distributing_table('import_work');
SELECT truncate_local_data_after_distributing_table('feed_followers');
SELECT truncate_local_data_after_distributing_table('feed_positions');
SELECT truncate_local_data_after_distributing_table('erasures');
SELECT truncate_local_data_after_distributing_table('feed_outbox');
SELECT truncate_local_data_after_distributing_table('confirmed_ranges')

-- name: nodes
-- The nodes that hold data, the coordinator included if it was added. Standbys that Citus knows have another role.
SELECT nodeid AS node_id, nodename AS host, nodeport AS port, isactive AS is_active  -- only: postgresql
FROM pg_dist_node WHERE CAST(noderole AS text) = 'primary' ORDER BY groupid, nodeid  -- only: postgresql

-- name: ask_nodes
-- Asks active nodes alone. A node that cannot be reached is a row without success, and not an error of the statement.
SELECT nodeid AS node_id, success AS is_reached, result  -- only: postgresql
FROM run_command_on_all_nodes(:command, give_warning_for_connection_errors => true)  -- only: postgresql

-- name: node_facts
-- Sent to each node, where it runs as the account of the server. A transaction that Citus prepared is committed or
-- rolled back within a minute or two.
SELECT json_build_object(  -- only: postgresql
    'synchronous_commit', current_setting('synchronous_commit'),  -- only: postgresql
    'fsync', current_setting('fsync'), 'full_page_writes', current_setting('full_page_writes'),  -- only: postgresql
    'postgresql', CAST(current_setting('server_version_num') AS integer) / 10000,  -- only: postgresql
    'citus', (SELECT extversion FROM pg_extension WHERE extname = 'citus'),  -- only: postgresql
    'connections', CAST(current_setting('max_connections') AS integer)  -- only: postgresql
        - CAST(current_setting('superuser_reserved_connections') AS integer)  -- only: postgresql
        - COALESCE(CAST(current_setting('reserved_connections', true) AS integer), 0),  -- only: postgresql
    'is_standby', pg_is_in_recovery(),  -- only: postgresql
    'is_read_only', current_setting('transaction_read_only') = 'on',  -- only: postgresql
    'old_prepared', (SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()  -- only: postgresql
        AND prepared < now() - interval '5 minutes'))  -- only: postgresql
