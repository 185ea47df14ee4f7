-- oldest program: 0.1.0
-- Submissions of one sender in the order in which they were received.
CREATE INDEX submissions_sent_by ON submissions (feed_id, actor_id, received_ms, submission_id);
