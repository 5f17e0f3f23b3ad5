-- Views for people and for checks. They only inform: nothing may be decided by them. Inputs, checkpoints and request
-- bodies are not part of any. Dropped first, so that a migration may change their columns.
DROP VIEW IF EXISTS @schema@.stranded, @schema@.orphans, @schema@.runs_view, @schema@.operations_view,
    @schema@.leases_view, @schema@.backlog, @schema@.unknown_operations;

-- Runs that are not terminal and not in exactly one condition: held, ready, parked. Empty at every moment (I9).
CREATE VIEW @schema@.stranded AS
SELECT r.run_id, r.tenant_id, r.task_id, r.status, x.held, x.ready, x.parked, m.at AS timer_at, r.updated_at
FROM @schema@.agent_runs r
LEFT JOIN @schema@.worker_leases l ON l.run_id = r.run_id
LEFT JOIN @schema@.ready y ON y.run_id = r.run_id
LEFT JOIN @schema@.timers m ON m.run_id = r.run_id
CROSS JOIN LATERAL (SELECT l.owner IS NOT NULL AS held, y.run_id IS NOT NULL AS ready,
                           r.wait_mode IS NOT NULL AND r.woke_reason IS NULL AS parked) x
WHERE r.status IN ('pending', 'running')
  AND (x.held::integer + x.ready::integer + x.parked::integer <> 1
       OR (m.run_id IS NOT NULL) <> (x.parked AND least(r.wait_until, r.deadline) IS NOT NULL)
       OR l.run_id IS NULL);

-- Rows that belong to nothing any more. Empty at every moment, but for the leases of cancelled runs until the next sweep,
-- which are not shown.
CREATE VIEW @schema@.orphans AS
SELECT 'operation' AS kind, o.operation_id AS id, r.run_id, 'not sent, and its run has ended' AS why
FROM @schema@.tool_operations o JOIN @schema@.agent_runs r ON r.run_id = o.run_id
WHERE r.status NOT IN ('pending', 'running') AND NOT o.detached
  AND (o.status = 'prepared' OR (o.status = 'unknown' AND o.attempts = o.attempts_not_sent))
UNION ALL
SELECT 'ready', y.run_id::text, y.run_id, 'its run has ended or does not exist'
FROM @schema@.ready y LEFT JOIN @schema@.agent_runs r ON r.run_id = y.run_id
WHERE coalesce(r.status, '') NOT IN ('pending', 'running')
UNION ALL
SELECT 'timer', m.run_id::text, m.run_id, 'its run has ended or does not exist'
FROM @schema@.timers m LEFT JOIN @schema@.agent_runs r ON r.run_id = m.run_id
WHERE coalesce(r.status, '') NOT IN ('pending', 'running')
UNION ALL
SELECT 'task', k.tenant_id || '/' || k.task_id, k.active_run_id, 'its active run does not exist'
FROM @schema@.agent_tasks k LEFT JOIN @schema@.agent_runs r ON r.run_id = k.active_run_id
WHERE r.run_id IS NULL;

CREATE VIEW @schema@.runs_view AS
SELECT r.tenant_id, r.task_id, r.run_id, k.active_run_id = r.run_id AS is_last, r.status,
       CASE WHEN r.status NOT IN ('pending', 'running') THEN 'ended'
            WHEN l.owner IS NOT NULL AND l.expires_at > clock_timestamp() THEN 'held'
            WHEN l.owner IS NOT NULL THEN 'lease ran out'
            WHEN y.run_id IS NOT NULL THEN 'ready'
            ELSE 'parked' END AS condition,
       r.handler, r.priority, r.revision, l.epoch, l.owner, l.expires_at AS lease_expires_at,
       r.attempts, r.failures, r.max_attempts, r.deadline, r.wait_mode, r.wait_operations, r.wait_signal, r.wait_until,
       m.at AS timer_at, r.woke_reason, r.first_run_id, r.prev_run_id, r.fresh, r.created_at, r.updated_at
FROM @schema@.agent_runs r
JOIN @schema@.agent_tasks k ON k.tenant_id = r.tenant_id AND k.task_id = r.task_id
LEFT JOIN @schema@.worker_leases l ON l.run_id = r.run_id
LEFT JOIN @schema@.ready y ON y.run_id = r.run_id
LEFT JOIN @schema@.timers m ON m.run_id = r.run_id;

CREATE VIEW @schema@.operations_view AS
SELECT o.operation_id, r.tenant_id, r.task_id, o.run_id, r.status AS run_status, o.step_id, o.effect_version, o.tool_name,
       o.capability, o.status, o.status = 'unknown' AND o.attempts = o.attempts_not_sent AS unsent,
       o.attempts <> o.attempts_not_sent AS may_have_been_sent, o.attempts, o.attempts_not_sent, o.first_sent_at,
       o.dispatch_owner, o.dispatch_until, o.not_before, o.remote_id, o.revision, o.request_digest, o.external_key,
       o.detached, o.after_operation, o.compensates, o.adopted_from, o.created_at, o.updated_at
FROM @schema@.tool_operations o JOIN @schema@.agent_runs r ON r.run_id = o.run_id;

-- Leases that have an owner.
CREATE VIEW @schema@.leases_view AS
SELECT l.run_id, r.tenant_id, r.task_id, r.handler, r.status, l.owner, l.epoch, l.expires_at,
       l.expires_at - clock_timestamp() AS remaining, l.expires_at <= clock_timestamp() AS ran_out, r.attempts, l.updated_at
FROM @schema@.worker_leases l JOIN @schema@.agent_runs r ON r.run_id = l.run_id
WHERE l.owner IS NOT NULL;

-- What waits to be done, by handler.
CREATE VIEW @schema@.backlog AS
SELECT y.handler, count(*) AS ready, min(y.since) AS oldest_since, clock_timestamp() - min(y.since) AS oldest_age,
       max(y.priority) AS highest_priority
FROM @schema@.ready y GROUP BY y.handler;

-- Operations that may have been sent and whose outcome nobody knows, oldest first; what a person must look at.
CREATE VIEW @schema@.unknown_operations AS
SELECT o.operation_id, r.tenant_id, r.task_id, o.run_id, r.status AS run_status, o.step_id, o.tool_name, o.capability,
       o.attempts, o.attempts_not_sent, o.first_sent_at, clock_timestamp() - o.first_sent_at AS age, o.not_before,
       o.dispatch_owner, o.dispatch_until, o.remote_id, o.external_key, o.revision, o.updated_at,
       o.escalated_at, o.queries, o.query_owner, o.query_until, @schema@.policy_of(o.declaration) AS on_cancel, o.undo
FROM @schema@.tool_operations o JOIN @schema@.agent_runs r ON r.run_id = o.run_id
WHERE o.status = 'unknown' AND o.attempts <> o.attempts_not_sent
ORDER BY o.first_sent_at;
