-- acquire(p_owner, p_token, p_run_ids[], p_ttl_ms, p_handlers[]) → items with their step context     interface; worker
--
-- Takes the leases of named runs: of those that are ready, and of those whose lease has run out.
--   p_owner     one execution session: pod name and a random token of its own
--   p_token     of this call: asked again with it, what is still held is answered again; nothing new is taken, nothing
--               is extended
--   p_run_ids   each at most once
--   p_handlers  that this pod serves (NULL: all); a run of another one is not_ready here
--
-- Outcomes: acquired, busy (held), missing, terminal, not_ready (parked), token_used (asked again: not held any more),
--           attempts_exhausted, deadline_exceeded (both end the run), gate_closed.
-- Errors: 22023, 25001; 55P03 when a row stays locked.
-- Locks: token (advisory), gate (shared), leases, runs, operations of runs that it ends. Waits for rows: a take-over
--        waits for the transaction of the holder that has validated.
-- Tables: control, claims, worker_leases, agent_runs, ready, run_data, tool_operations, signals, outbox_events,
--         run_history.
CREATE OR REPLACE FUNCTION @iface@.acquire(p_owner text, p_token uuid, p_run_ids uuid[], p_ttl_ms bigint, p_handlers text[])
RETURNS TABLE (item integer, outcome text, run_id uuid, epoch bigint, revision bigint, tenant_id text, task_id text,
    handler text, attempt integer, failures integer, takeover boolean, takeover_ms bigint, started boolean,
    checkpoint jsonb, input jsonb, woke_reason text, operations jsonb, signals jsonb, earlier jsonb,
    deadline timestamptz, first_run_id uuid, prev_run_id uuid, traceparent text, tracestate text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET lock_timeout = '5s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_material = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_n integer := @schema@.batch_check('acquire', ARRAY[cardinality(p_run_ids)]);
    t   timestamptz;
    k   record;
BEGIN
    PERFORM @schema@.lease_check('acquire', p_owner, p_token, p_ttl_ms);
    IF (SELECT count(DISTINCT i.run_id) <> count(i.run_id) FROM unnest(p_run_ids) AS i(run_id)) THEN
        RAISE EXCEPTION 'acquire: a run is named twice' USING ERRCODE = '22023';
    END IF;

    IF EXISTS (SELECT 1 FROM @schema@.claims c WHERE c.token = p_token) THEN
        RETURN QUERY SELECT a.* FROM @schema@.take_again(p_owner, p_token, p_run_ids) a;
        RETURN;
    END IF;
    IF NOT @schema@.gate_open() THEN
        PERFORM @schema@.keep_empty_token(clock_timestamp(), p_owner, p_token, true);
        RETURN QUERY SELECT c.* FROM @schema@.step_contexts(@schema@.ordinals(v_n), p_run_ids,
            array_fill('gate_closed'::text, ARRAY[v_n]), NULL, NULL, NULL) c;
        RETURN;
    END IF;

    -- Lock.
    PERFORM 1 FROM @schema@.worker_leases l WHERE l.run_id = ANY (p_run_ids) ORDER BY l.run_id FOR NO KEY UPDATE;
    PERFORM 1 FROM @schema@.agent_runs r WHERE r.run_id = ANY (p_run_ids) ORDER BY r.run_id FOR NO KEY UPDATE;
    t := clock_timestamp();
    -- Decide and write.
    k := @schema@.take_runs(t, p_owner, p_token, p_run_ids, p_ttl_ms, p_handlers, false);
    RETURN QUERY SELECT c.* FROM @schema@.step_contexts(@schema@.ordinals(v_n), p_run_ids, k.o_outcomes, k.o_takeovers,
                                                        k.o_takeover_ms, k.o_started) c;
END $$;
