-- oldest program: 0.1.0
-- history_deleted_ms: superseded versions of the feed were deleted up to this time; 0 if none ever was.
ALTER TABLE feeds ADD COLUMN history_deleted_ms BIGINT NOT NULL DEFAULT 0;
