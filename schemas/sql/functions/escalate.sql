-- escalate(p_limit) → how many                                               internal, @schema@
--
-- Operations whose doubt has lasted longer than their tool's declared escalate_after_ms: a person's business from now on.
-- Once each: evidence `escalated`, an operation.unknown event that says so, and escalated_at in the view
-- unknown_operations. Nothing else about them changes: whatever may still settle them goes on. For the sweep.
-- Locks: runs, then operations, both with SKIP LOCKED, as expire_claims.
-- Tables: agent_runs, worker_leases, tool_operations, operation_evidence, outbox_events.
CREATE OR REPLACE FUNCTION @schema@.escalate(p_limit integer) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    t      timestamptz := clock_timestamp();
    v_ids  text[];
    v_runs uuid[];
BEGIN
    SELECT array_agg(c.operation_id), array_agg(DISTINCT c.run_id) INTO v_ids, v_runs
      FROM (SELECT o.operation_id, o.run_id FROM @schema@.tool_operations o
             WHERE o.status = 'unknown' AND o.escalate_at IS NOT NULL AND o.escalate_at <= t
             ORDER BY o.escalate_at LIMIT p_limit) c;
    IF v_ids IS NULL THEN
        RETURN 0;
    END IF;
    SELECT array_agg(l.run_id) INTO v_runs FROM (
        SELECT r.run_id FROM @schema@.agent_runs r WHERE r.run_id = ANY (v_runs)
         ORDER BY r.run_id FOR NO KEY UPDATE SKIP LOCKED) l;
    SELECT array_agg(l.operation_id) INTO v_ids FROM (
        SELECT o.operation_id FROM @schema@.tool_operations o
         WHERE o.operation_id = ANY (v_ids) AND o.run_id = ANY (v_runs)
         ORDER BY o.operation_id FOR NO KEY UPDATE SKIP LOCKED) l;
    t := clock_timestamp();
    -- One that is unsent by now was in no doubt after all; the next attempt that may have been sent sets its time anew.
    SELECT array_agg(o.operation_id ORDER BY o.operation_id) INTO v_ids FROM @schema@.tool_operations o
     WHERE o.operation_id = ANY (v_ids) AND o.status = 'unknown' AND o.escalate_at <= t
       AND o.attempts > o.attempts_not_sent;
    IF v_ids IS NULL THEN
        RETURN 0;
    END IF;
    UPDATE @schema@.tool_operations o SET escalate_at = NULL, escalated_at = t WHERE o.operation_id = ANY (v_ids);
    INSERT INTO @schema@.operation_evidence (at, operation_id, attempt, dispatch_owner, dispatch_revision, epoch, kind, detail)
    SELECT t, o.operation_id, o.attempts, o.dispatch_owner, o.claimed_revision, l.epoch, 'escalated',
           jsonb_build_object('first_sent_at', o.first_sent_at, 'queries', o.queries, 'capability', o.capability)
      FROM @schema@.tool_operations o LEFT JOIN @schema@.worker_leases l ON l.run_id = o.run_id
     WHERE o.operation_id = ANY (v_ids) ORDER BY o.operation_id;
    PERFORM @schema@.emit_operations(t, v_ids, array_fill('operation.unknown'::text, ARRAY[cardinality(v_ids)]),
                                     array_fill('{"why": "escalated"}'::jsonb, ARRAY[cardinality(v_ids)]));
    RETURN cardinality(v_ids);
END
$$;
