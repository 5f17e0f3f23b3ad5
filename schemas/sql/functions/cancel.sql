-- cancel: records that end a run. One item a record; its request key is answered once and for ever.   interface; worker, operator
--
--   p_tenant, p_task, p_key, p_own_key, p_digest, p_source, p_by   the record, as in submit; p_task may be NULL with a run
--   p_run_id    NULL: the task's active run, or its last
--   p_reason    in words, for the event and the history
--   p_record    the record itself, kept while it waits for a task that is not there yet
--
-- Outcomes: cancelled; already_terminal (status says how it ended; detached: operations that may still go on);
--           run_mismatch (the run is not this task's); missing; waiting (no such task yet: applied by the submission that
--           makes it within control_grace, else missing); duplicate (first_outcome), request_conflict; invalid.
-- The run ends first; then, in a later statement, its prepared and unsent operations. Others keep their state and are
-- named in detached, and policies says what happens to each: [{"operation_id", "status", "policy", "what"}]. A holder
-- hears it from renew.
-- Errors: 22023, 25001; 55P03; 40001 as in submit.
-- Locks: tasks, runs, operations; requests by insert in key order. For a task that is not there a row is inserted and
--        deleted again: the submission that makes it at this moment waits, and then sees what is waiting for it.
-- Tables: as submit.
CREATE OR REPLACE FUNCTION @iface@.cancel(
    p_tenant text[], p_task text[], p_key text[], p_own_key boolean[], p_digest text[], p_source text[], p_by text[],
    p_run_id uuid[], p_reason text[], p_record jsonb[])
RETURNS TABLE (item integer, outcome text, first_outcome text, run_id uuid, status text, detached text[],
    policies jsonb)
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
    v_n integer := @schema@.batch_check('cancel', ARRAY[cardinality(p_tenant), cardinality(p_task), cardinality(p_key),
        cardinality(p_own_key), cardinality(p_digest), cardinality(p_source), cardinality(p_by), cardinality(p_run_id),
        cardinality(p_reason), cardinality(p_record)]);
    v_keys    text[] := @schema@.request_keys(p_key, p_own_key);
    v_tasks   text[] := @schema@.control_tasks(p_tenant, p_task, p_run_id);
    v_bad     boolean[];
    v_made    record;
    v_runs    uuid[];
    v_outcome text[];
    v_first   text[];
    v_run     uuid[];
    v_cancel  integer[];
    v_grace   bigint;
    t         timestamptz;
BEGIN
    PERFORM @schema@.check_records('cancel', p_tenant, v_tasks, v_keys);
    SELECT c.control_grace_ms INTO STRICT v_grace FROM @schema@.control c WHERE c.the_one;
    v_bad := @schema@.bad_controls(p_tenant, v_tasks, v_keys, p_digest, p_run_id);

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
    SELECT array_agg(d.outcome), array_agg(d.first_outcome),
           array_agg(CASE WHEN d.outcome IN ('duplicate', 'request_conflict') THEN d.known_run_id
                          WHEN d.outcome IN ('cancelled', 'already_terminal') THEN d.run_id END),
           array_agg(d.n) FILTER (WHERE d.outcome = 'cancelled')
    INTO v_outcome, v_first, v_run, v_cancel
    FROM (SELECT g.n, r.run_id, q.outcome AS first_outcome, q.run_id AS known_run_id, CASE
              WHEN v_bad[g.n] THEN 'invalid'
              WHEN q.tenant_id IS NOT NULL
                  THEN CASE WHEN q.digest = p_digest[g.n] AND q.verb = 'cancel' THEN 'duplicate' ELSE 'request_conflict' END
              WHEN r.run_id IS NULL AND p_run_id[g.n] IS NOT NULL
                  THEN CASE WHEN k.active_run_id IS NULL THEN 'missing' ELSE 'run_mismatch' END
              WHEN r.run_id IS NULL THEN 'waiting'
              WHEN r.tenant_id <> p_tenant[g.n] OR r.task_id <> v_tasks[g.n] THEN 'run_mismatch'
              WHEN r.status NOT IN ('pending', 'running') THEN 'already_terminal'
              ELSE 'cancelled' END AS outcome
          FROM generate_series(1, v_n) AS g(n)
          LEFT JOIN @schema@.requests q ON q.tenant_id = p_tenant[g.n] AND q.request_key = v_keys[g.n]
          LEFT JOIN @schema@.agent_tasks k ON k.tenant_id = p_tenant[g.n] AND k.task_id = v_tasks[g.n]
          LEFT JOIN @schema@.agent_runs r ON r.run_id = v_runs[g.n]
          ORDER BY g.n OFFSET 0) d;

    -- Write.
    DELETE FROM @schema@.agent_tasks k USING unnest(v_made.tenants, v_made.tasks) AS m(tenant_id, task_id)
    WHERE k.tenant_id = m.tenant_id AND k.task_id = m.task_id;
    PERFORM @schema@.cancel_runs(t, array_agg(v_run[k.n] ORDER BY k.ord), array_agg(p_reason[k.n] ORDER BY k.ord),
                                 array_agg(p_by[k.n] ORDER BY k.ord))
    FROM unnest(v_cancel) WITH ORDINALITY AS k(n, ord);
    PERFORM @schema@.keep_requests(t, 'cancel', array_agg(p_tenant[g.n] ORDER BY g.n), array_agg(v_keys[g.n] ORDER BY g.n),
        array_agg(p_digest[g.n] ORDER BY g.n), array_agg(p_source[g.n] ORDER BY g.n),
        array_agg(coalesce(v_tasks[g.n], '') ORDER BY g.n), array_agg(v_run[g.n] ORDER BY g.n),
        array_agg(v_outcome[g.n] ORDER BY g.n),
        array_agg(CASE WHEN p_reason[g.n] IS NOT NULL THEN jsonb_build_object('reason', p_reason[g.n]) END ORDER BY g.n),
        array_agg(p_by[g.n] ORDER BY g.n), array_agg(p_record[g.n] ORDER BY g.n), t + v_grace * interval '1 millisecond')
    FROM generate_series(1, v_n) AS g(n) WHERE v_outcome[g.n] NOT IN ('invalid', 'duplicate', 'request_conflict');

    RETURN QUERY
    SELECT g.n, v_outcome[g.n], v_first[g.n], v_run[g.n], r.status,
           CASE WHEN r.status NOT IN ('pending', 'running') THEN @schema@.in_doubt(r.run_id) END,
           CASE WHEN r.status NOT IN ('pending', 'running') THEN @schema@.cancel_policies(@schema@.in_doubt(r.run_id)) END
    FROM generate_series(1, v_n) AS g(n)
    LEFT JOIN @schema@.agent_runs r ON r.run_id = v_run[g.n];
END $$;

-- cancel_policies(p_operation_ids[]): what becomes of operations that may go on after their run was cancelled, in the order
-- given; NULL when there is none.
CREATE OR REPLACE FUNCTION @schema@.cancel_policies(p_operation_ids text[]) RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT jsonb_agg(jsonb_build_object('operation_id', o.operation_id, 'status', o.status,
                                 'policy', @schema@.policy_of(o.declaration), 'what', @schema@.cancel_outlook(o)) ORDER BY u.ord)
            FROM unnest(p_operation_ids) WITH ORDINALITY AS u(operation_id, ord)
            JOIN @schema@.tool_operations o ON o.operation_id = u.operation_id);
END $$;

-- control_tasks: the task that each control record speaks of, out of its run where it names only that. A run's task never
-- changes, so it may be read before any lock.
CREATE OR REPLACE FUNCTION @schema@.control_tasks(p_tenants text[], p_tasks text[], p_run_ids uuid[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN ARRAY(SELECT coalesce(p_tasks[g.n], r.task_id) FROM generate_series(1, cardinality(p_tenants)) AS g(n)
                 LEFT JOIN @schema@.agent_runs r ON r.run_id = p_run_ids[g.n] AND r.tenant_id = p_tenants[g.n]
                 ORDER BY g.n);
END $$;

-- bad_controls: which control records lack what they would be recorded under.
CREATE OR REPLACE FUNCTION @schema@.bad_controls(p_tenants text[], p_tasks text[], p_keys text[], p_digests text[],
    p_run_ids uuid[]) RETURNS boolean[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(array_agg(NOT coalesce(length(p_tenants[g.n]) BETWEEN 1 AND 64 AND length(p_keys[g.n]) BETWEEN 1 AND 1000
                        AND p_digests[g.n] IS NOT NULL
                        AND coalesce(length(p_tasks[g.n]) BETWEEN 1 AND 200, p_run_ids[g.n] IS NOT NULL), false)
                    ORDER BY g.n), '{}')
    FROM generate_series(1, cardinality(p_tenants)) AS g(n)
$$;
