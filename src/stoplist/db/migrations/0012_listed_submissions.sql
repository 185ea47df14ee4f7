-- oldest program: 0.1.0
-- Submissions in the order in which they were received, without acts by opt-out links: each click is one, and lists would show
-- nothing else.
CREATE INDEX submissions_listed ON submissions (feed_id, received_ms, submission_id) WHERE actor_kind <> 'link';
