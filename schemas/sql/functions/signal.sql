-- signal: records that tell a run something it may wait for. One item a record; its request key is answered once and for
-- ever.                                                                                      interface; worker, operator
--
--   p_tenant … p_by   the record, as in submit; p_task may be NULL with a run
--   p_run_id          NULL: whichever run of the task sees it first. Else that run alone; what answers a run must name it
--   p_signal_id       identity within the task, for the commit that consumes it
--   p_name, p_payload what a run waits for, and what it is told
--   p_record          the record itself, kept while it waits for a task that is not there yet
--
-- Outcomes: delivered (stored; shown in every step context until a commit consumes it); terminal (the run has ended);
--           run_mismatch (the run is not this task's); missing; waiting (no such task yet: applied by the submission that
--           makes it within control_grace, else missing); duplicate (first_outcome), request_conflict; invalid.
-- woke: the run became ready by this call (asked again: is ready); epoch: of its lease, it would get the next one. A run
-- that is held finds the signal when it parks; one that woke for another reason keeps that reason.
-- Errors: 22023, 25001; 55P03; 40001 as in submit.
-- Locks: tasks, runs, then inserts of signals and requests in key order; ready, timers by wake_runs(). Signals are added
--        under their task's lock. A task that is not there is inserted and deleted again, as in cancel.
-- Tables: control, requests, agent_tasks, agent_runs, worker_leases, signals, tool_operations, ready, timers.
CREATE OR REPLACE FUNCTION @iface@.signal(
    p_tenant text[], p_task text[], p_key text[], p_own_key boolean[], p_digest text[], p_source text[], p_by text[],
    p_run_id uuid[], p_signal_id text[], p_name text[], p_payload jsonb[], p_record jsonb[])
RETURNS TABLE (item integer, outcome text, first_outcome text, run_id uuid, woke boolean, epoch bigint)
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
    v_n integer := @schema@.batch_check('signal', ARRAY[cardinality(p_tenant), cardinality(p_task), cardinality(p_key),
        cardinality(p_own_key), cardinality(p_digest), cardinality(p_source), cardinality(p_by), cardinality(p_run_id),
        cardinality(p_signal_id), cardinality(p_name), cardinality(p_payload), cardinality(p_record)]);
    v_keys    text[] := @schema@.request_keys(p_key, p_own_key);
    v_tasks   text[] := @schema@.control_tasks(p_tenant, p_task, p_run_id);
    c         @schema@.control%ROWTYPE;
    v_bad     boolean[];
    v_made    record;
    v_runs    uuid[];
    v_outcome text[];
    v_first   text[];
    v_run     uuid[];
    v_woken   uuid[];
    t         timestamptz;
BEGIN
    PERFORM @schema@.check_records('signal', p_tenant, v_tasks, v_keys);
    SELECT * INTO STRICT c FROM @schema@.control k WHERE k.the_one;
    v_bad := @schema@.bad_controls(p_tenant, v_tasks, v_keys, p_digest, p_run_id);
    SELECT coalesce(array_agg(v_bad[g.n] OR NOT coalesce(length(p_signal_id[g.n]) BETWEEN 1 AND 200
                                 AND length(p_name[g.n]) BETWEEN 1 AND 64, false)
                              OR coalesce(pg_column_size(p_payload[g.n]) > c.max_body_bytes, false) ORDER BY g.n), '{}')
    INTO v_bad FROM generate_series(1, v_n) AS g(n);

    -- Lock.
    WITH made AS (
        INSERT INTO @schema@.agent_tasks (tenant_id, task_id)
        SELECT p_tenant[g.n], p_task[g.n]
        FROM generate_series(1, v_n) AS g(n)
        LEFT JOIN @schema@.agent_tasks k ON k.tenant_id = p_tenant[g.n] AND k.task_id = p_task[g.n]
        WHERE NOT v_bad[g.n] AND p_run_id[g.n] IS NULL AND k.tenant_id IS NULL
        ORDER BY p_tenant[g.n], p_task[g.n]
        ON CONFLICT DO NOTHING
        RETURNING tenant_id, task_id)
    SELECT array_agg(m.tenant_id) AS tenants, array_agg(m.task_id) AS tasks INTO v_made FROM made m;
    PERFORM 1 FROM generate_series(1, v_n) AS g(n)
    JOIN @schema@.agent_tasks k ON k.tenant_id = p_tenant[g.n] AND k.task_id = v_tasks[g.n]
    ORDER BY k.tenant_id, k.task_id FOR NO KEY UPDATE OF k;
    SELECT array_agg(coalesce(p_run_id[g.n], k.active_run_id) ORDER BY g.n) INTO v_runs
    FROM generate_series(1, v_n) AS g(n)
    LEFT JOIN @schema@.agent_tasks k ON k.tenant_id = p_tenant[g.n] AND k.task_id = v_tasks[g.n];
    PERFORM 1 FROM @schema@.agent_runs r WHERE r.run_id = ANY (v_runs) ORDER BY r.run_id FOR NO KEY UPDATE;
    t := clock_timestamp();

    -- Decide.
    SELECT array_agg(d.outcome),
           array_agg(CASE WHEN d.outcome IN ('duplicate', 'request_conflict') THEN coalesce(d.first_outcome, 'delivered') END),
           array_agg(CASE WHEN d.first_outcome IS NOT NULL THEN d.known_run_id
                          WHEN d.outcome IN ('delivered', 'duplicate', 'terminal') THEN d.run_id END)
    INTO v_outcome, v_first, v_run
    FROM (SELECT g.n, r.run_id, q.outcome AS first_outcome, q.run_id AS known_run_id, CASE
              WHEN v_bad[g.n] THEN 'invalid'
              WHEN q.tenant_id IS NOT NULL
                  THEN CASE WHEN q.digest = p_digest[g.n] AND q.verb = 'signal' THEN 'duplicate' ELSE 'request_conflict' END
              WHEN r.run_id IS NULL AND p_run_id[g.n] IS NOT NULL
                  THEN CASE WHEN k.active_run_id IS NULL THEN 'missing' ELSE 'run_mismatch' END
              WHEN r.run_id IS NULL THEN 'waiting'
              WHEN r.tenant_id <> p_tenant[g.n] OR r.task_id <> v_tasks[g.n] THEN 'run_mismatch'
              WHEN s.signal_id IS NOT NULL THEN 'duplicate' -- under another request key
              WHEN r.status NOT IN ('pending', 'running') THEN 'terminal'
              ELSE 'delivered' END AS outcome
          FROM generate_series(1, v_n) AS g(n)
          LEFT JOIN @schema@.requests q ON q.tenant_id = p_tenant[g.n] AND q.request_key = v_keys[g.n]
          LEFT JOIN @schema@.agent_tasks k ON k.tenant_id = p_tenant[g.n] AND k.task_id = v_tasks[g.n]
          LEFT JOIN @schema@.agent_runs r ON r.run_id = v_runs[g.n]
          LEFT JOIN @schema@.signals s ON s.tenant_id = p_tenant[g.n] AND s.task_id = v_tasks[g.n]
                                      AND s.signal_id = p_signal_id[g.n]
          ORDER BY g.n OFFSET 0) d;

    -- Write.
    DELETE FROM @schema@.agent_tasks k USING unnest(v_made.tenants, v_made.tasks) AS m(tenant_id, task_id)
    WHERE k.tenant_id = m.tenant_id AND k.task_id = m.task_id;
    INSERT INTO @schema@.signals (tenant_id, task_id, signal_id, run_id, name, payload, created_at)
    SELECT p_tenant[g.n], v_tasks[g.n], p_signal_id[g.n], p_run_id[g.n], p_name[g.n], p_payload[g.n], t
    FROM generate_series(1, v_n) AS g(n) WHERE v_outcome[g.n] = 'delivered'
    ORDER BY p_tenant[g.n], v_tasks[g.n], p_signal_id[g.n];
    PERFORM @schema@.keep_requests(t, 'signal', array_agg(p_tenant[g.n] ORDER BY g.n), array_agg(v_keys[g.n] ORDER BY g.n),
        array_agg(p_digest[g.n] ORDER BY g.n), array_agg(p_source[g.n] ORDER BY g.n),
        array_agg(coalesce(v_tasks[g.n], '') ORDER BY g.n), array_agg(v_run[g.n] ORDER BY g.n),
        array_agg(v_outcome[g.n] ORDER BY g.n),
        array_agg(jsonb_build_object('signal_id', p_signal_id[g.n], 'name', p_name[g.n]) ORDER BY g.n),
        array_agg(p_by[g.n] ORDER BY g.n), array_agg(p_record[g.n] ORDER BY g.n),
        t + c.control_grace_ms * interval '1 millisecond')
    FROM generate_series(1, v_n) AS g(n) WHERE v_outcome[g.n] NOT IN ('invalid', 'duplicate', 'request_conflict');
    UPDATE @schema@.requests q SET payload = p_payload[g.n]
    FROM generate_series(1, v_n) AS g(n)
    WHERE v_outcome[g.n] = 'waiting' AND p_payload[g.n] IS NOT NULL
      AND q.tenant_id = p_tenant[g.n] AND q.request_key = v_keys[g.n];
    v_woken := @schema@.wake_runs(
        (SELECT array_agg(v_run[g.n]) FROM generate_series(1, v_n) AS g(n) WHERE v_outcome[g.n] = 'delivered'), t);

    RETURN QUERY
    SELECT g.n, v_outcome[g.n], v_first[g.n], v_run[g.n],
           CASE v_outcome[g.n] WHEN 'delivered' THEN v_run[g.n] = ANY (v_woken)
                WHEN 'duplicate' THEN EXISTS (SELECT FROM @schema@.ready y WHERE y.run_id = v_run[g.n])
                ELSE false END,
           l.epoch
    FROM generate_series(1, v_n) AS g(n)
    LEFT JOIN @schema@.worker_leases l ON l.run_id = v_run[g.n];
END $$;
