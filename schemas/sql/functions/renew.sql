-- renew(p_run_ids[], p_owners[], p_epochs[], p_ttl_ms) → item, outcome, current_epoch, status         interface; worker
--
-- Extends leases that are still valid. Never revives one that has run out, and never waits for a row: the clock is read
-- after the locks, and a lease that somebody is deciding about is busy.
--
-- Outcomes: renewed; busy (ask again at the next beat); lost (unknown run, other owner or epoch, or expired);
--           released (this very epoch gave its lease back: a beat that crossed the commit or release of its own holder;
--           nothing was refused, so none is kept);
--           terminal (the run has ended: this is how a cancellation reaches its handler);
--           deadline (the run's deadline has passed: not extended).
-- Errors: 22023, 25001.
-- Locks: leases (SKIP LOCKED). Tables: control, worker_leases, agent_runs, refusals.
CREATE OR REPLACE FUNCTION @iface@.renew(p_run_ids uuid[], p_owners text[], p_epochs bigint[], p_ttl_ms bigint)
RETURNS TABLE (item integer, outcome text, current_epoch bigint, status text)
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
    v_n        integer := @schema@.batch_check('renew', ARRAY[cardinality(p_run_ids), cardinality(p_owners), cardinality(p_epochs)]);
    v_got      boolean[];
    v_outcomes text[];
    v_epochs   bigint[];
    v_statuses text[];
    v_renew    uuid[];
    t          timestamptz;
BEGIN
    PERFORM @schema@.check_ttl('renew', p_ttl_ms, c.max_lease_ttl_ms) FROM @schema@.control c;
    IF (SELECT count(DISTINCT i.run_id) <> count(i.run_id) FROM unnest(p_run_ids) AS i(run_id)) THEN
        RAISE EXCEPTION 'renew: a run is named twice' USING ERRCODE = '22023';
    END IF;

    -- Lock: NULL for a lease that is not there or not to be had.
    SELECT array_agg(g.got ORDER BY i.ord) INTO v_got
    FROM unnest(p_run_ids) WITH ORDINALITY AS i(run_id, ord)
    LEFT JOIN LATERAL (SELECT true AS got FROM @schema@.worker_leases l WHERE l.run_id = i.run_id
                       FOR NO KEY UPDATE SKIP LOCKED) g ON true;
    t := clock_timestamp();

    -- Decide.
    SELECT array_agg(d.outcome), array_agg(d.epoch), array_agg(d.status),
           array_agg(d.run_id) FILTER (WHERE d.outcome = 'renewed')
    INTO v_outcomes, v_epochs, v_statuses, v_renew
    FROM (SELECT i.ord, i.run_id, l.epoch, r.status,
                 CASE WHEN l.run_id IS NULL THEN 'lost'
                      WHEN v_got[i.ord] IS NULL THEN 'busy'
                      WHEN l.epoch IS DISTINCT FROM p_epochs[i.ord] THEN 'lost'
                      WHEN r.status NOT IN ('pending', 'running') THEN 'terminal'
                      WHEN l.owner IS NULL AND NOT l.ran_out THEN 'released'
                      WHEN l.owner IS DISTINCT FROM p_owners[i.ord] OR l.expires_at <= t THEN 'lost'
                      WHEN r.deadline <= t THEN 'deadline'
                      ELSE 'renewed' END AS outcome
          FROM unnest(p_run_ids) WITH ORDINALITY AS i(run_id, ord)
          LEFT JOIN @schema@.worker_leases l ON l.run_id = i.run_id
          LEFT JOIN @schema@.agent_runs r ON r.run_id = i.run_id
          ORDER BY i.ord OFFSET 0) d;

    -- Write.
    UPDATE @schema@.worker_leases l SET expires_at = t + p_ttl_ms * interval '1 millisecond', updated_at = t
    WHERE l.run_id = ANY (v_renew);
    IF 'lost' = ANY (v_outcomes) THEN
        PERFORM @schema@.refuse(t, 'renew', array_agg(p_run_ids[o.n]), array_agg(p_epochs[o.n]), array_agg('lost'::text),
                                array_agg(p_owners[o.n]), array_agg(v_epochs[o.n]))
        FROM generate_series(1, v_n) AS o(n) WHERE v_outcomes[o.n] = 'lost' AND v_epochs[o.n] IS NOT NULL;
    END IF;
    RETURN QUERY SELECT o.n, v_outcomes[o.n], v_epochs[o.n], v_statuses[o.n] FROM generate_series(1, v_n) AS o(n);
END $$;
