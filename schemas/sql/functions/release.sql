-- release(p_run_ids[], p_owners[], p_epochs[], p_graceful) → item, outcome, current_epoch             interface; worker
--
-- Gives leases back. The epoch stays; the run becomes ready unless it has ended. Never disturbs a successor: a lease that
-- has run out is no longer the caller's to give, the sweep makes it ready.
--   p_graceful  the attempt does not count
--
-- Outcomes: released, not_holder.
-- Errors: 22023, 25001; 55P03 when a row stays locked.
-- Locks: leases, runs. Tables: control, worker_leases, agent_runs, ready, refusals.
CREATE OR REPLACE FUNCTION @iface@.release(p_run_ids uuid[], p_owners text[], p_epochs bigint[], p_graceful boolean)
RETURNS TABLE (item integer, outcome text, current_epoch bigint)
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
    v_n        integer := @schema@.batch_check('release', ARRAY[cardinality(p_run_ids), cardinality(p_owners), cardinality(p_epochs)]);
    v_outcomes text[];
    v_epochs   bigint[];
    v_release  uuid[];
    v_ready    uuid[];
    t          timestamptz;
BEGIN
    IF (SELECT count(DISTINCT i.run_id) <> count(i.run_id) FROM unnest(p_run_ids) AS i(run_id)) THEN
        RAISE EXCEPTION 'release: a run is named twice' USING ERRCODE = '22023';
    END IF;
    -- Lock.
    PERFORM 1 FROM @schema@.worker_leases l WHERE l.run_id = ANY (p_run_ids) ORDER BY l.run_id FOR NO KEY UPDATE;
    PERFORM 1 FROM @schema@.agent_runs r WHERE r.run_id = ANY (p_run_ids) ORDER BY r.run_id FOR NO KEY UPDATE;
    t := clock_timestamp();

    -- Decide.
    SELECT array_agg(d.outcome), array_agg(d.epoch),
           array_agg(d.run_id) FILTER (WHERE d.outcome = 'released'),
           array_agg(d.run_id)
               FILTER (WHERE d.outcome = 'released' AND d.status IN ('pending', 'running'))
    INTO v_outcomes, v_epochs, v_release, v_ready
    FROM (SELECT i.ord, i.run_id, l.epoch, r.status,
                 CASE WHEN l.owner = p_owners[i.ord] AND l.epoch = p_epochs[i.ord] AND l.expires_at > t THEN 'released'
                      ELSE 'not_holder' END AS outcome
          FROM unnest(p_run_ids) WITH ORDINALITY AS i(run_id, ord)
          LEFT JOIN @schema@.worker_leases l ON l.run_id = i.run_id
          LEFT JOIN @schema@.agent_runs r ON r.run_id = i.run_id
          ORDER BY i.ord OFFSET 0) d;

    -- Write.
    UPDATE @schema@.worker_leases l SET owner = NULL, expires_at = t, updated_at = t WHERE l.run_id = ANY (v_release);
    IF p_graceful THEN
        UPDATE @schema@.agent_runs r SET attempts = 0, updated_at = t WHERE r.run_id = ANY (v_ready);
    END IF;
    INSERT INTO @schema@.ready (run_id, handler, priority, since)
    SELECT r.run_id, r.handler, r.priority, t FROM @schema@.agent_runs r WHERE r.run_id = ANY (v_ready)
    ORDER BY r.run_id ON CONFLICT (run_id) DO NOTHING;
    IF 'not_holder' = ANY (v_outcomes) THEN
        PERFORM @schema@.refuse(t, 'release', array_agg(p_run_ids[o.n]), array_agg(p_epochs[o.n]),
                                array_agg('not_holder'::text), array_agg(p_owners[o.n]), array_agg(v_epochs[o.n]))
        FROM generate_series(1, v_n) AS o(n) WHERE v_outcomes[o.n] = 'not_holder' AND v_epochs[o.n] IS NOT NULL;
    END IF;
    RETURN QUERY SELECT o.n, v_outcomes[o.n], v_epochs[o.n] FROM generate_series(1, v_n) AS o(n);
END $$;
