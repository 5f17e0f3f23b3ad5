-- emit_operations(p_t, p_operation_ids[], p_types[], p_details[])            internal, @schema@
--
-- Events about operations, read from the ledger as this transaction has just written it: operation.succeeded,
-- operation.failed, operation.unknown, operation.cancelled, operation.contradiction. p_details (NULL: none) is what the
-- type adds: the fact that contradicts, or {"why": "unanswered" | "expired" | "lost_history"} of a doubt.
-- What a caller must hold: the locks of the operations' runs, as for emit().
-- Locks: none. Tables: tool_operations, agent_runs, worker_leases, outbox_events.
CREATE OR REPLACE FUNCTION @schema@.emit_operations(p_t timestamptz, p_operation_ids text[], p_types text[],
                                                    p_details jsonb[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    e record;
BEGIN
    IF coalesce(cardinality(p_operation_ids), 0) = 0 THEN
        RETURN;
    END IF;
    SELECT array_agg(q.run_id) AS runs, array_agg(q.tenant_id) AS tenants, array_agg(q.task_id) AS tasks,
           array_agg(q.type) AS types, array_agg(q.epoch) AS epochs, array_agg(q.revision) AS revisions,
           array_agg(q.body) AS bodies
      INTO e
      FROM (SELECT o.run_id, r.tenant_id, r.task_id, i.type, l.epoch, r.revision,
                   jsonb_build_object('operation', jsonb_build_object(
                       'operation_id', o.operation_id, 'step_id', o.step_id, 'effect_version', o.effect_version,
                       'tool_name', o.tool_name, 'request_digest', o.request_digest, 'status', o.status,
                       'revision', o.revision, 'attempts', o.attempts)
                   || CASE WHEN o.remote_id IS NULL THEN '{}' ELSE jsonb_build_object('remote_id', o.remote_id) END
                   || CASE WHEN o.result IS NULL THEN '{}' ELSE jsonb_build_object('result', o.result) END
                   || CASE WHEN i.detail IS NULL THEN '{}' ELSE jsonb_build_object('detail', i.detail) END) AS body
              FROM unnest(p_operation_ids, p_types, p_details) WITH ORDINALITY i (operation_id, type, detail, ord)
              JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
              JOIN @schema@.agent_runs r ON r.run_id = o.run_id
              JOIN @schema@.worker_leases l ON l.run_id = o.run_id
             ORDER BY i.ord) q;
    PERFORM @schema@.emit(p_t, e.runs, e.tenants, e.tasks, e.types, e.epochs, e.revisions, e.bodies);
END $$;
