-- step_contexts: the whole step context of acquired runs, read in the transaction that acquired them. Internal.
-- Parallel arrays in, one row an item out; what was not acquired gets its outcome and the current epoch, no more.
CREATE OR REPLACE FUNCTION @schema@.step_contexts(p_items integer[], p_run_ids uuid[], p_outcomes text[],
    p_takeovers boolean[], p_takeover_ms bigint[], p_started boolean[])
RETURNS TABLE (item integer, outcome text, run_id uuid, epoch bigint, revision bigint, tenant_id text, task_id text,
    handler text, attempt integer, failures integer, takeover boolean, takeover_ms bigint, started boolean,
    checkpoint jsonb, input jsonb, woke_reason text, operations jsonb, signals jsonb, earlier jsonb,
    deadline timestamptz, first_run_id uuid, prev_run_id uuid, traceparent text, tracestate text)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT u.item, u.outcome, u.run_id, l.epoch, r.revision, r.tenant_id, r.task_id,
           r.handler, r.attempts, r.failures, coalesce(u.takeover, false),
           CASE WHEN u.takeover THEN u.takeover_ms END, coalesce(u.started, false),
           r.checkpoint, d.input, r.woke_reason,
           (SELECT jsonb_agg(@schema@.operation_context(o) ORDER BY o.created_at, o.step_id, o.effect_version)
            FROM @schema@.tool_operations o WHERE o.run_id = r.run_id),
           (SELECT jsonb_agg(jsonb_build_object('signal_id', s.signal_id, 'name', s.name, 'payload', s.payload,
                                                'at', s.created_at) ORDER BY s.created_at, s.signal_id)
            FROM @schema@.signals s
            WHERE s.tenant_id = r.tenant_id AND s.task_id = r.task_id AND s.consumed_by IS NULL
              AND coalesce(s.run_id, r.run_id) = r.run_id),
           CASE WHEN r.prev_run_id IS NOT NULL THEN
               (SELECT jsonb_agg(jsonb_build_object('run_id', c.run_id, 'status', c.status,
                           'output', cd.output, 'failure', cd.failure,
                           'operations', coalesce((
                               SELECT jsonb_agg(@schema@.operation_context(o)
                                                ORDER BY o.created_at, o.step_id, o.effect_version)
                               FROM @schema@.tool_operations o WHERE o.run_id = c.run_id), '[]')) ORDER BY c.created_at)
                FROM @schema@.chain_of(r.first_run_id) AS h(run_id)
                JOIN @schema@.agent_runs c ON c.run_id = h.run_id
                LEFT JOIN @schema@.run_data cd ON cd.run_id = h.run_id
                WHERE c.run_id <> r.run_id) END,
           r.deadline, r.first_run_id, r.prev_run_id, d.traceparent, d.tracestate
    FROM unnest(p_items, p_run_ids, p_outcomes, p_takeovers, p_takeover_ms, p_started)
         AS u(item, run_id, outcome, takeover, takeover_ms, started)
    LEFT JOIN @schema@.worker_leases l ON l.run_id = u.run_id
    LEFT JOIN @schema@.agent_runs r ON r.run_id = u.run_id AND u.outcome = 'acquired'
    LEFT JOIN @schema@.run_data d ON d.run_id = u.run_id AND u.outcome = 'acquired';
END $$;

-- An operation as a step context shows it. (A body in quotes: one that is parsed now would keep a later migration from
-- adding a column to the table.)
CREATE OR REPLACE FUNCTION @schema@.operation_context(o @schema@.tool_operations) RETURNS jsonb
LANGUAGE sql STABLE AS $$
SELECT jsonb_build_object(
    'operation_id', o.operation_id, 'step_id', o.step_id, 'effect_version', o.effect_version,
    'tool_name', o.tool_name, 'request_digest', o.request_digest, 'status', o.status,
    'unsent', o.status = 'unknown' AND o.attempts = o.attempts_not_sent,
    'remote_id', o.remote_id, 'result', o.result, 'adopted_from', o.adopted_from, 'detached', o.detached)
$$;

-- The runs of one submission: the first, and its retries.
CREATE OR REPLACE FUNCTION @schema@.chain_of(p_first_run_id uuid) RETURNS SETOF uuid
LANGUAGE sql STABLE AS $$
    SELECT p_first_run_id
    UNION ALL
    SELECT c.run_id FROM @schema@.agent_runs c WHERE c.first_run_id = p_first_run_id AND c.prev_run_id IS NOT NULL
$$;
