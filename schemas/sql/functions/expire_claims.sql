-- expire_claims(p_limit) → expired                                           interface; worker (and sweep)
--
-- Claims whose deadline passed: dispatching → unknown, never back to prepared, for nobody can know whether the session
-- that vanished had sent. dispatch_owner, dispatch_until and the claim's revision stay, so that a late answer can be
-- told from a forged one. An idempotency key inside its retention is due again after a back-off.
--
-- Returns how many, and the tool of each operation that is in doubt for the first time. Errors: 22023, 25001.
-- Locks: runs, then operations, both with SKIP LOCKED: never waits for a row, what it did not get it leaves for later.
-- Tables: control, agent_runs, worker_leases, tool_operations, operation_evidence, outbox_events.
DROP FUNCTION IF EXISTS @iface@.expire_claims(integer); -- its result has grown
CREATE FUNCTION @iface@.expire_claims(p_limit integer)
RETURNS TABLE (expired integer, doubtful text[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET lock_timeout = '2s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    t      timestamptz := clock_timestamp();
    v_ids  text[];
    v_runs uuid[];
    v_told text[];
    v_tools text[];
BEGIN
    PERFORM @schema@.batch_check('expire_claims', ARRAY[p_limit]);
    SELECT array_agg(c.operation_id), array_agg(DISTINCT c.run_id) INTO v_ids, v_runs
      FROM (SELECT o.operation_id, o.run_id FROM @schema@.tool_operations o
             WHERE o.status = 'dispatching' AND o.dispatch_until <= t ORDER BY o.dispatch_until LIMIT p_limit) c;
    IF v_ids IS NULL THEN
        RETURN QUERY SELECT 0, '{}'::text[];
        RETURN;
    END IF;
    SELECT array_agg(l.run_id) INTO v_runs FROM (
        SELECT r.run_id FROM @schema@.agent_runs r WHERE r.run_id = ANY (v_runs)
         ORDER BY r.run_id FOR NO KEY UPDATE SKIP LOCKED) l;
    SELECT array_agg(l.operation_id) INTO v_ids FROM (
        SELECT o.operation_id FROM @schema@.tool_operations o
         WHERE o.operation_id = ANY (v_ids) AND o.run_id = ANY (v_runs)
         ORDER BY o.operation_id FOR NO KEY UPDATE SKIP LOCKED) l;

    t := clock_timestamp();
    SELECT array_agg(o.operation_id ORDER BY o.operation_id) INTO v_ids
      FROM @schema@.tool_operations o
     WHERE o.operation_id = ANY (v_ids) AND o.status = 'dispatching' AND o.dispatch_until <= t;

    INSERT INTO @schema@.operation_evidence (at, operation_id, attempt, dispatch_owner, dispatch_revision, epoch, kind,
                                             detail)
    SELECT t, o.operation_id, o.claimed_attempt, o.dispatch_owner, o.claimed_revision, l.epoch, 'expired',
           jsonb_build_object('until', o.dispatch_until)
      FROM @schema@.tool_operations o
      LEFT JOIN @schema@.worker_leases l ON l.run_id = o.run_id
     WHERE o.operation_id = ANY (v_ids);
    UPDATE @schema@.tool_operations o
       SET status = 'unknown', revision = o.revision + 1, updated_at = t,
           not_before = @schema@.due_again(o.capability, o.declaration, o.first_sent_at, o.retention_ms, t,
                                           @schema@.back_off_ms(o.attempts))
     WHERE o.operation_id = ANY (v_ids);
    SELECT array_agg(o.operation_id ORDER BY o.operation_id), array_agg(o.tool_name) INTO v_told, v_tools
      FROM @schema@.tool_operations o
     WHERE o.operation_id = ANY (v_ids) AND o.claimed_attempt - o.attempts_not_sent = 1; -- in doubt for the first time
    IF v_told IS NOT NULL THEN
        PERFORM @schema@.emit_operations(t, v_told, array_fill('operation.unknown'::text, ARRAY[cardinality(v_told)]),
                                         array_fill('{"why": "expired"}'::jsonb, ARRAY[cardinality(v_told)]));
    END IF;
    RETURN QUERY SELECT coalesce(cardinality(v_ids), 0), coalesce(v_tools, '{}');
END
$$;
