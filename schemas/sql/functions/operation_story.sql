-- operation_story(p_operation_id) → story jsonb                              interface; worker, operator, viewer
--
-- Everything a person asks about one operation: what it is, what may still happen to it and until when, what it undoes or
-- is undone by, and all evidence in order. One row; NULL when there is no such operation. The request's body is not part
-- of it. It only informs: nothing may be decided by it.
--
-- Locks: none. Tables: control, tool_operations, agent_runs, worker_leases, operation_evidence.
CREATE OR REPLACE FUNCTION @iface@.operation_story(p_operation_id text)
RETURNS TABLE (story jsonb)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    t timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    SELECT jsonb_build_object(
               'operation_id', o.operation_id, 'tenant_id', r.tenant_id, 'task_id', r.task_id, 'run_id', o.run_id,
               'run_status', r.status, 'epoch', l.epoch, 'step_id', o.step_id, 'effect_version', o.effect_version,
               'tool_name', o.tool_name, 'capability', o.capability, 'declaration', o.declaration,
               'request_digest', o.request_digest, 'external_key', o.external_key,
               'status', o.status, 'unsent', o.status = 'unknown' AND o.attempts = o.attempts_not_sent,
               'may_have_been_sent', o.attempts <> o.attempts_not_sent, 'revision', o.revision,
               'attempts', o.attempts, 'attempts_not_sent', o.attempts_not_sent, 'first_sent_at', o.first_sent_at,
               'dispatch_owner', o.dispatch_owner, 'dispatch_until', o.dispatch_until,
               'remote_id', o.remote_id, 'result', o.result, 'detached', o.detached,
               'after_operation', o.after_operation, 'adopted_from', o.adopted_from,
               'created_at', o.created_at, 'updated_at', o.updated_at, 'now', t)
           || jsonb_build_object(
               'not_before', o.not_before, 'queries', o.queries, 'query_owner', o.query_owner, 'query_until', o.query_until,
               'escalate_at', o.escalate_at, 'escalated_at', o.escalated_at,
               'key_remembered_until', CASE WHEN o.capability = 'idempotency_key'
                   THEN o.first_sent_at + o.retention_ms * interval '1 millisecond' END,
               'absent_final_at', CASE WHEN o.attempts > 0 THEN @schema@.absent_final_at(o.capability, o.declaration,
                   coalesce(o.dispatch_until, '-infinity'), k.gate_changed_at) END,
               'when_cancelled', @schema@.cancel_outlook(o), 'undo', o.undo, 'compensates', o.compensates,
               'undone_by', coalesce((
                   SELECT jsonb_agg(jsonb_build_object('operation_id', x.operation_id, 'status', x.status, 'tool_name', x.tool_name)
                                    ORDER BY x.created_at)
                     FROM @schema@.tool_operations x WHERE x.compensates = o.operation_id), '[]'),
               'evidence', coalesce((
                   SELECT jsonb_agg(jsonb_build_object(
                              'at', e.at, 'kind', e.kind, 'attempt', e.attempt, 'dispatch_owner', e.dispatch_owner,
                              'dispatch_revision', e.dispatch_revision, 'epoch', e.epoch, 'detail', e.detail)
                              ORDER BY e.evidence_id)
                     FROM @schema@.operation_evidence e WHERE e.operation_id = o.operation_id), '[]'))
      FROM @schema@.tool_operations o
      JOIN @schema@.agent_runs r ON r.run_id = o.run_id
     CROSS JOIN @schema@.control k
      LEFT JOIN @schema@.worker_leases l ON l.run_id = o.run_id
     WHERE o.operation_id = p_operation_id;
    IF NOT FOUND THEN
        RETURN QUERY SELECT NULL::jsonb;
    END IF;
END
$$;
