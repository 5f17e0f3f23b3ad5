-- story(p_tenant, p_task, p_run) → story jsonb                               interface; worker, operator, viewer
--
-- Everything a person asks about a task, newest run first (at most 50): who held it in which epoch, what was written,
-- which operations it has with their evidence, what was refused to whom, which requests were answered how.
-- p_run given: that run alone, and p_task is not needed. One row; NULL when there is no such task or run.
-- Inputs and request bodies are not part of it: they may hold what a viewer must not see. It only informs: nothing may
-- be decided by it (answers to repeated commits and claims come only from the functions that take the row locks).
--
-- Locks: none. Tables: agent_tasks, agent_runs, run_data, worker_leases, ready, timers, tool_operations,
--        operation_evidence, run_history, refusals, requests.
CREATE OR REPLACE FUNCTION @iface@.story(p_tenant text, p_task text, p_run uuid)
RETURNS TABLE (story jsonb)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_tenant text := coalesce(p_tenant, 'default');
    v_task   text := p_task;
    t        timestamptz := clock_timestamp();
BEGIN
    IF p_run IS NOT NULL THEN
        SELECT r.tenant_id, r.task_id INTO v_tenant, v_task FROM @schema@.agent_runs r WHERE r.run_id = p_run;
    END IF;
    RETURN QUERY
    SELECT jsonb_build_object(
               'tenant_id', k.tenant_id, 'task_id', k.task_id, 'active_run_id', k.active_run_id,
               'created_at', k.created_at, 'now', t,
               'runs', coalesce((
                   SELECT jsonb_agg(@schema@.story_of_run(r.run_id, t) ORDER BY r.created_at DESC, r.run_id DESC)
                     FROM (SELECT a.run_id, a.created_at FROM @schema@.agent_runs a
                            WHERE a.tenant_id = k.tenant_id AND a.task_id = k.task_id
                              AND (p_run IS NULL OR a.run_id = p_run)
                            ORDER BY a.created_at DESC, a.run_id DESC LIMIT 50) r), '[]'),
               'requests', coalesce((
                   SELECT jsonb_agg(jsonb_build_object(
                              'request_key', q.request_key, 'verb', q.verb, 'outcome', q.outcome, 'run_id', q.run_id,
                              'source', q.source, 'by', q.requested_by, 'at', q.created_at, 'detail', q.detail)
                              ORDER BY q.created_at)
                     FROM @schema@.requests q
                    WHERE q.tenant_id = k.tenant_id AND q.task_id = k.task_id
                      AND (p_run IS NULL OR q.run_id = p_run)), '[]'))
      FROM @schema@.agent_tasks k WHERE k.tenant_id = v_tenant AND k.task_id = v_task;
    IF NOT FOUND THEN
        RETURN QUERY SELECT NULL::jsonb;
    END IF;
END
$$;

-- story_of_run(p_run, p_now) → jsonb: one run's part of a story.                                      internal, @schema@
CREATE OR REPLACE FUNCTION @schema@.story_of_run(p_run uuid, p_now timestamptz) RETURNS jsonb
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
    SELECT jsonb_build_object(
               'run_id', r.run_id, 'status', r.status, 'handler', r.handler, 'revision', r.revision, 'epoch', l.epoch,
               'owner', l.owner, 'lease_expires_at', CASE WHEN l.owner IS NOT NULL THEN l.expires_at END,
               'condition', CASE WHEN r.status NOT IN ('pending', 'running') THEN 'ended'
                                 WHEN l.owner IS NOT NULL AND l.expires_at > p_now THEN 'held'
                                 WHEN l.owner IS NOT NULL THEN 'lease ran out'
                                 WHEN y.run_id IS NOT NULL THEN 'ready'
                                 ELSE 'parked' END,
               'waits_for', CASE WHEN r.wait_mode IS NOT NULL THEN jsonb_build_object(
                                'mode', r.wait_mode, 'operations', to_jsonb(r.wait_operations),
                                'signal', r.wait_signal, 'until', r.wait_until) END,
               'due_at', m.at, 'woke_reason', r.woke_reason,
               'attempts', r.attempts, 'failures', r.failures, 'max_attempts', r.max_attempts,
               'priority', r.priority, 'deadline', r.deadline, 'first_run_id', r.first_run_id,
               'prev_run_id', r.prev_run_id, 'fresh', r.fresh, 'created_at', r.created_at, 'updated_at', r.updated_at,
               'checkpoint', r.checkpoint, 'output', d.output, 'failure', d.failure, 'labels', d.labels,
               'traceparent', d.traceparent,
               'history', coalesce((
                   SELECT jsonb_agg(jsonb_build_object(
                              'at', h.at, 'kind', h.kind, 'from', h.from_status, 'to', h.to_status, 'epoch', h.epoch,
                              'revision', h.revision, 'owner', h.owner, 'detail', h.detail) ORDER BY h.history_id)
                     FROM @schema@.run_history h WHERE h.run_id = r.run_id), '[]'),
               'refusals', coalesce((
                   SELECT jsonb_agg(jsonb_build_object(
                              'verb', f.verb, 'reason', f.reason, 'epoch', f.epoch, 'current_epoch', f.current_epoch,
                              'owner', f.owner, 'count', f.refused, 'first_at', f.first_at, 'last_at', f.last_at)
                              ORDER BY f.first_at, f.epoch, f.verb)
                     FROM @schema@.refusals f WHERE f.run_id = r.run_id), '[]'),
               'operations', coalesce((
                   SELECT jsonb_agg(jsonb_build_object(
                              'operation_id', o.operation_id, 'step_id', o.step_id, 'effect_version', o.effect_version,
                              'tool_name', o.tool_name, 'capability', o.capability, 'status', o.status,
                              'may_have_been_sent', o.attempts <> o.attempts_not_sent,
                              'attempts', o.attempts, 'attempts_not_sent', o.attempts_not_sent,
                              'revision', o.revision, 'request_digest', o.request_digest,
                              'external_key', o.external_key, 'dispatch_owner', o.dispatch_owner,
                              'dispatch_until', o.dispatch_until, 'not_before', o.not_before,
                              'remote_id', o.remote_id, 'result', o.result, 'detached', o.detached,
                              'adopted_from', o.adopted_from, 'compensates', o.compensates,
                              'created_at', o.created_at, 'updated_at', o.updated_at,
                              'evidence', coalesce((
                                  SELECT jsonb_agg(jsonb_build_object(
                                             'at', e.at, 'kind', e.kind, 'attempt', e.attempt,
                                             'dispatch_owner', e.dispatch_owner, 'epoch', e.epoch, 'detail', e.detail)
                                             ORDER BY e.evidence_id)
                                    FROM @schema@.operation_evidence e WHERE e.operation_id = o.operation_id), '[]'))
                              ORDER BY o.created_at, o.operation_id)
                     FROM @schema@.tool_operations o WHERE o.run_id = r.run_id), '[]'))
      FROM @schema@.agent_runs r
      JOIN @schema@.worker_leases l ON l.run_id = r.run_id
      LEFT JOIN @schema@.run_data d ON d.run_id = r.run_id
      LEFT JOIN @schema@.ready y ON y.run_id = r.run_id
      LEFT JOIN @schema@.timers m ON m.run_id = r.run_id
     WHERE r.run_id = p_run
$$;
