-- Append-only: there is no statement here that changes or deletes.

-- name: append
INSERT INTO audit (at_ms, actor_kind, actor_id, source_ip, request_id, action, target, detail)
VALUES (:at_ms, :actor_kind, :actor_id, :source_ip, :request_id, :action, :target, :detail)
