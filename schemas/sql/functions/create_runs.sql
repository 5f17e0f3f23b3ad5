-- create_runs: new runs of tasks whose locks the caller holds, all in one transaction: run, data, lease, the task's
-- active run, and the row in ready or timers. Internal, for submit and retry.
-- Parallel arrays, in order of run_id or not. p_first: NULL for a submission, else the head of the chain.
-- Controls that waited for the task are the caller's.
-- Tables: agent_runs, run_data, worker_leases, agent_tasks, ready, timers, run_history.
CREATE OR REPLACE FUNCTION @schema@.create_runs(p_t timestamptz, p_run_ids uuid[], p_tenants text[], p_tasks text[],
    p_handlers text[], p_priorities integer[], p_max_attempts integer[], p_deadlines timestamptz[],
    p_not_before timestamptz[], p_first uuid[], p_prev uuid[], p_fresh boolean[], p_inputs jsonb[], p_labels jsonb[],
    p_traceparents text[], p_tracestates text[], p_details jsonb[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_n integer := coalesce(cardinality(p_run_ids), 0);
BEGIN
    IF v_n = 0 THEN
        RETURN;
    END IF;
    -- A start in the future is a wait for a time, like any other.
    INSERT INTO @schema@.agent_runs (run_id, tenant_id, task_id, status, handler, priority, max_attempts, deadline,
                                     first_run_id, prev_run_id, fresh, wait_mode, wait_until, created_at, updated_at)
    SELECT u.run_id, u.tenant_id, u.task_id, 'pending', u.handler, coalesce(u.priority, 0), coalesce(u.max_attempts, 3),
           u.deadline, coalesce(u.first_run_id, u.run_id), u.prev_run_id, coalesce(u.fresh, false),
           CASE WHEN u.not_before > p_t THEN 'none' END, CASE WHEN u.not_before > p_t THEN u.not_before END, p_t, p_t
    FROM unnest(p_run_ids, p_tenants, p_tasks, p_handlers, p_priorities, p_max_attempts, p_deadlines, p_not_before,
                p_first, p_prev, p_fresh)
         AS u(run_id, tenant_id, task_id, handler, priority, max_attempts, deadline, not_before, first_run_id,
              prev_run_id, fresh);
    INSERT INTO @schema@.run_data (run_id, input, labels, traceparent, tracestate)
    SELECT u.run_id, coalesce(u.input, '{}'), u.labels, u.traceparent, u.tracestate
    FROM unnest(p_run_ids, p_inputs, p_labels, p_traceparents, p_tracestates)
         AS u(run_id, input, labels, traceparent, tracestate);
    INSERT INTO @schema@.worker_leases (run_id, updated_at) SELECT u.run_id, p_t FROM unnest(p_run_ids) AS u(run_id);
    UPDATE @schema@.agent_tasks k SET active_run_id = u.run_id, updated_at = p_t
    FROM unnest(p_run_ids, p_tenants, p_tasks) AS u(run_id, tenant_id, task_id)
    WHERE k.tenant_id = u.tenant_id AND k.task_id = u.task_id AND k.active_run_id IS DISTINCT FROM u.run_id;

    INSERT INTO @schema@.ready (run_id, handler, priority, since)
    SELECT u.run_id, u.handler, coalesce(u.priority, 0), p_t
    FROM unnest(p_run_ids, p_handlers, p_priorities, p_not_before) AS u(run_id, handler, priority, not_before)
    WHERE coalesce(u.not_before <= p_t, true);
    INSERT INTO @schema@.timers (run_id, at)
    SELECT u.run_id, least(u.not_before, u.deadline)
    FROM unnest(p_run_ids, p_not_before, p_deadlines) AS u(run_id, not_before, deadline)
    WHERE u.not_before > p_t;

    PERFORM @schema@.history(p_t, p_run_ids, p_tenants, p_tasks, array_fill('created'::text, ARRAY[v_n]),
        array_fill(NULL::text, ARRAY[v_n]), array_fill('pending'::text, ARRAY[v_n]), array_fill(0::bigint, ARRAY[v_n]),
        array_fill(0::bigint, ARRAY[v_n]), array_fill(NULL::text, ARRAY[v_n]), array_fill(NULL::uuid, ARRAY[v_n]),
        p_details);
END $$;
