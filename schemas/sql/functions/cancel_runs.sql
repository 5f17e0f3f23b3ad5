-- cancel_runs(p_t, p_run_ids[], p_reasons[], p_bys[]): these runs end as cancelled. Internal.
-- The caller holds the runs' locks and has decided that none is terminal. First the run, then, in later statements, its
-- operations: an intent that a holder registered meanwhile is seen. The lease stays: its holder hears it from renew.
-- Locks: operations. Tables: agent_runs, ready, timers, tool_operations, run_data, run_history, outbox_events.
CREATE OR REPLACE FUNCTION @schema@.cancel_runs(p_t timestamptz, p_run_ids uuid[], p_reasons text[], p_bys text[])
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    h record;
BEGIN
    IF coalesce(cardinality(p_run_ids), 0) = 0 THEN
        RETURN;
    END IF;
    SELECT array_agg(r.run_id ORDER BY u.ord) AS run_ids, array_agg(r.tenant_id ORDER BY u.ord) AS tenants,
           array_agg(r.task_id ORDER BY u.ord) AS tasks, array_agg('cancelled'::text) AS kinds,
           array_agg(r.status ORDER BY u.ord) AS befores, array_agg('run.cancelled'::text) AS types,
           array_agg(l.epoch ORDER BY u.ord) AS epochs, array_agg(r.revision + 1 ORDER BY u.ord) AS revisions,
           array_agg(l.owner ORDER BY u.ord) AS owners, array_agg(NULL::uuid) AS commits,
           array_agg(jsonb_strip_nulls(jsonb_build_object('reason', 'cancelled', 'detail', u.reason, 'by', u.by))
                     ORDER BY u.ord) AS details,
           array_agg(jsonb_build_object('failure', jsonb_strip_nulls(jsonb_build_object(
                         'reason', 'cancelled', 'detail', u.reason, 'by', u.by))) ORDER BY u.ord) AS bodies
    INTO h
    FROM unnest(p_run_ids, p_reasons, p_bys) WITH ORDINALITY AS u(run_id, reason, by, ord)
    JOIN @schema@.agent_runs r ON r.run_id = u.run_id
    JOIN @schema@.worker_leases l ON l.run_id = u.run_id;

    UPDATE @schema@.agent_runs r
    SET status = 'cancelled', revision = r.revision + 1, updated_at = p_t,
        wait_mode = NULL, wait_operations = NULL, wait_signal = NULL, wait_until = NULL, woke_reason = NULL
    WHERE r.run_id = ANY (h.run_ids);
    DELETE FROM @schema@.ready y WHERE y.run_id = ANY (h.run_ids);
    DELETE FROM @schema@.timers m WHERE m.run_id = ANY (h.run_ids);
    PERFORM @schema@.cancel_open(p_t, h.run_ids);
    -- What is in flight may finish; what its tool wants done about that is remembered until it is registered (undo_due).
    UPDATE @schema@.tool_operations o SET undo = @schema@.undo_of(o.declaration)
    WHERE o.run_id = ANY (h.run_ids) AND o.status IN ('dispatching', 'unknown') AND o.compensates IS NULL
      AND @schema@.undo_of(o.declaration) IS NOT NULL;
    UPDATE @schema@.run_data d SET failure = u.detail
    FROM unnest(h.run_ids, h.details) AS u(run_id, detail) WHERE d.run_id = u.run_id;

    PERFORM @schema@.history(p_t, h.run_ids, h.tenants, h.tasks, h.kinds, h.befores, h.kinds, h.epochs, h.revisions,
                             h.owners, h.commits, h.details);
    PERFORM @schema@.emit(p_t, h.run_ids, h.tenants, h.tasks, h.types, h.epochs, h.revisions, h.bodies);
END $$;

-- in_doubt(p_run_id) → the operations of a run that may have been sent and are not settled, and those that outlive a run
-- that has ended and are still to be sent; NULL when there is none.
CREATE OR REPLACE FUNCTION @schema@.in_doubt(p_run_id uuid) RETURNS text[]
LANGUAGE sql STABLE AS $$
    SELECT array_agg(o.operation_id ORDER BY o.operation_id) FROM @schema@.tool_operations o
    WHERE o.run_id = p_run_id
      AND (o.status = 'dispatching'
           OR (o.status = 'unknown' AND (o.attempts <> o.attempts_not_sent OR (o.detached AND EXISTS (
               SELECT FROM @schema@.agent_runs r WHERE r.run_id = p_run_id AND r.status NOT IN ('pending', 'running'))))))
$$;
