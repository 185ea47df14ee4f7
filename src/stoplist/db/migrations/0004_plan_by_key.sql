-- oldest program: 0.1.0
-- From its statistics of existing feeds, PostgreSQL estimates that a new feed has at most one row, so that any index
-- will do: until the next ANALYZE it scans the whole feed once per address. Without statistics of feed_id it treats
-- every feed as an average one and uses the key. Setting the (unchanged) type drops existing statistics. SQLite gathers
-- none by itself.

ALTER TABLE unsubscribes ALTER COLUMN feed_id SET STATISTICS 0;  -- only: postgresql
ALTER TABLE unsubscribes ALTER COLUMN feed_id TYPE BIGINT;  -- only: postgresql
ALTER TABLE unsubscribe_versions ALTER COLUMN feed_id SET STATISTICS 0;  -- only: postgresql
ALTER TABLE unsubscribe_versions ALTER COLUMN feed_id TYPE BIGINT;  -- only: postgresql
