-- oldest program: 0.1.0
-- From what it knows of the feeds that there are, PostgreSQL believes of a new one that it has a row at most, and that
-- any index does: it then walks through the whole feed once an address, until it gathers statistics again. Without
-- statistics of feed_id it expects of every feed what it expects of an average one, and takes the key. Those that it has
-- already go with the (unchanged) type. SQLite gathers none by itself.

ALTER TABLE unsubscribes ALTER COLUMN feed_id SET STATISTICS 0;  -- only: postgresql
ALTER TABLE unsubscribes ALTER COLUMN feed_id TYPE BIGINT;  -- only: postgresql
ALTER TABLE unsubscribe_versions ALTER COLUMN feed_id SET STATISTICS 0;  -- only: postgresql
ALTER TABLE unsubscribe_versions ALTER COLUMN feed_id TYPE BIGINT;  -- only: postgresql
