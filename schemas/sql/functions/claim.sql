-- claim(p_owner, p_token, p_limit, p_ttl_ms, p_handlers[]) → items with their step context           interface; worker
--
-- Takes up to p_limit ready runs, priority first and then the oldest; never waits for a row. Otherwise as acquire.
-- Runs whose lease has run out are ready once the sweep has seen them.
--
-- Outcomes: acquired, attempts_exhausted, deadline_exceeded; asked again: acquired or token_used for what the first
--           call took; gate_closed (one row). No row: nothing was ready.
-- Errors: 22023, 25001.
-- Locks: token (advisory), gate (shared), leases and runs (SKIP LOCKED), operations of runs that it ends.
-- Tables: as acquire.
CREATE OR REPLACE FUNCTION @iface@.claim(p_owner text, p_token uuid, p_limit integer, p_ttl_ms bigint, p_handlers text[])
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
SET enable_sort = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_handlers text[];
    v_ids      uuid[];
    t          timestamptz;
    k          record;
BEGIN
    PERFORM @schema@.lease_check('claim', p_owner, p_token, p_ttl_ms);
    IF coalesce(p_limit, 0) <= 0 OR p_limit > (SELECT c.max_batch FROM @schema@.control c) THEN
        RAISE EXCEPTION 'claim: a limit of %', p_limit USING ERRCODE = '22023';
    END IF;

    IF EXISTS (SELECT 1 FROM @schema@.claims c WHERE c.token = p_token) THEN
        RETURN QUERY SELECT a.* FROM @schema@.take_again(p_owner, p_token, NULL) a;
        RETURN;
    END IF;
    IF NOT @schema@.gate_open() THEN
        PERFORM @schema@.keep_empty_token(clock_timestamp(), p_owner, p_token, true);
        RETURN QUERY SELECT c.* FROM @schema@.step_contexts('{1}', '{NULL}', '{gate_closed}', NULL, NULL, NULL) c;
        RETURN;
    END IF;

    IF p_handlers IS NOT NULL THEN
        -- Each once: a second look would find what the first has locked, and hand it out twice.
        v_handlers := ARRAY(SELECT DISTINCT u.handler FROM unnest(p_handlers) AS u(handler));
    ELSE
        -- Every handler that has something ready, one index probe each.
        WITH RECURSIVE h AS (
            (SELECT y.handler FROM @schema@.ready y ORDER BY y.handler LIMIT 1)
            UNION ALL
            SELECT (SELECT y.handler FROM @schema@.ready y WHERE y.handler > h.handler ORDER BY y.handler LIMIT 1)
            FROM h WHERE h.handler IS NOT NULL)
        SELECT array_agg(h.handler) FILTER (WHERE h.handler IS NOT NULL) INTO v_handlers FROM h;
    END IF;

    -- Lock: each handler's front, the row locks taken in that order and under the limit; what somebody else holds is
    -- passed over.
    SELECT array_agg(q.run_id ORDER BY q.priority DESC, q.since, q.run_id) INTO v_ids
    FROM (SELECT c.run_id, c.priority, c.since
          FROM unnest(v_handlers) AS h(handler)
          CROSS JOIN LATERAL (SELECT y.run_id, y.priority, y.since
                              FROM @schema@.ready y JOIN @schema@.worker_leases l ON l.run_id = y.run_id
                              WHERE y.handler = h.handler
                              ORDER BY y.priority DESC, y.since, y.run_id
                              LIMIT p_limit FOR NO KEY UPDATE OF l SKIP LOCKED) c
          ORDER BY c.priority DESC, c.since, c.run_id LIMIT p_limit) q;
    SELECT array_agg(i.run_id ORDER BY i.ord) INTO v_ids
    FROM unnest(v_ids) WITH ORDINALITY AS i(run_id, ord)
    CROSS JOIN LATERAL (SELECT 1 FROM @schema@.agent_runs r WHERE r.run_id = i.run_id
                        FOR NO KEY UPDATE SKIP LOCKED) x;
    t := clock_timestamp();
    IF v_ids IS NULL THEN
        PERFORM @schema@.keep_empty_token(t, p_owner, p_token, true);
        RETURN;
    END IF;

    -- Decide and write. What somebody else took between the look and the lock is dropped.
    k := @schema@.take_runs(t, p_owner, p_token, v_ids, p_ttl_ms, v_handlers, true);
    RETURN QUERY
    SELECT c.* FROM @schema@.step_contexts(@schema@.ordinals(cardinality(v_ids)), v_ids, k.o_outcomes, k.o_takeovers,
                                           k.o_takeover_ms, k.o_started) c
    WHERE c.outcome IN ('acquired', 'attempts_exhausted', 'deadline_exceeded');
END $$;
