-- retry: records that ask for a new run of a task whose last run has ended.                          interface; worker, operator
--
--   p_tenant … p_by      the record, as in submit; p_task may be NULL with a run
--   p_run_id             the run to retry: the task's last, or it is run_mismatch (NULL: the last)
--   p_new_run_id         made by the caller, the same when the batch is repeated
--   p_fresh              adopts nothing of what earlier runs have effected; `again` lists what will be done once more
--   p_allow_unsettled    in spite of operations of that run that may have been sent and are not settled; kept with
--                        p_by and p_reason
--   p_traceparent, p_tracestate   NULL: those of the retried run
--
-- Outcomes: created, task_active, unsettled_operations (named), run_mismatch, missing; duplicate (first_outcome),
--           request_conflict; invalid.
-- The new run has the old one's handler, input, priority, labels and limits; a deadline that has passed is dropped.
-- Errors: 22023, 25001; 55P03; 40001 as in submit.
-- Locks: tasks; requests by insert in key order. A run that has ended does not change and is not locked.
-- Tables: as submit.
CREATE OR REPLACE FUNCTION @iface@.retry(
    p_tenant text[], p_task text[], p_key text[], p_own_key boolean[], p_digest text[], p_source text[], p_by text[],
    p_run_id uuid[], p_new_run_id uuid[], p_fresh boolean[], p_allow_unsettled boolean[], p_reason text[],
    p_traceparent text[], p_tracestate text[])
RETURNS TABLE (item integer, outcome text, first_outcome text, run_id uuid, due boolean, epoch bigint, unsettled text[],
    again text[])
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
    v_n integer := @schema@.batch_check('retry', ARRAY[cardinality(p_tenant), cardinality(p_task), cardinality(p_key),
        cardinality(p_own_key), cardinality(p_digest), cardinality(p_source), cardinality(p_by), cardinality(p_run_id),
        cardinality(p_new_run_id), cardinality(p_fresh), cardinality(p_allow_unsettled), cardinality(p_reason),
        cardinality(p_traceparent), cardinality(p_tracestate)]);
    v_keys    text[] := @schema@.request_keys(p_key, p_own_key);
    v_tasks   text[] := @schema@.control_tasks(p_tenant, p_task, p_run_id);
    v_bad     boolean[];
    v_outcome text[];
    v_first   text[];
    v_run     uuid[];
    v_prev    uuid[];
    v_new     integer[];
    v_detail  jsonb[];
    t         timestamptz;
    h         record;
BEGIN
    PERFORM @schema@.check_records('retry', p_tenant, v_tasks, v_keys);
    v_bad := @schema@.bad_controls(p_tenant, v_tasks, v_keys, p_digest, p_run_id);

    -- Lock.
    PERFORM 1 FROM generate_series(1, v_n) AS g(n)
    JOIN @schema@.agent_tasks k ON k.tenant_id = p_tenant[g.n] AND k.task_id = v_tasks[g.n]
    ORDER BY k.tenant_id, k.task_id FOR NO KEY UPDATE OF k;
    t := clock_timestamp();

    -- Decide.
    SELECT array_agg(d.outcome), array_agg(d.first_outcome),
           array_agg(CASE d.outcome WHEN 'created' THEN p_new_run_id[d.n] WHEN 'task_active' THEN d.run_id
                                    WHEN 'unsettled_operations' THEN d.run_id WHEN 'duplicate' THEN d.known_run_id END),
           array_agg(d.run_id),
           array_agg(d.n) FILTER (WHERE d.outcome = 'created'),
           array_agg(CASE d.outcome
               WHEN 'created' THEN jsonb_strip_nulls(jsonb_build_object(
                   'retry_of', d.run_id, 'reason', p_reason[d.n], 'by', p_by[d.n],
                   'allow_unsettled', to_jsonb(d.doubt),
                   'again', CASE WHEN p_fresh[d.n] THEN to_jsonb(d.again) END))
               WHEN 'unsettled_operations' THEN jsonb_build_object('operations', to_jsonb(d.doubt))
               WHEN 'duplicate' THEN d.known_detail END)
    INTO v_outcome, v_first, v_run, v_prev, v_new, v_detail
    FROM (SELECT b.*, CASE
              WHEN v_bad[b.n] OR p_new_run_id[b.n] IS NULL THEN 'invalid'
              WHEN b.first_outcome IS NOT NULL THEN CASE WHEN b.same THEN 'duplicate' ELSE 'request_conflict' END
              WHEN b.run_id IS NULL AND (p_run_id[b.n] IS NULL OR b.active_run_id IS NULL) THEN 'missing'
              WHEN b.run_id IS NULL OR b.tenant_id <> p_tenant[b.n] OR b.task_id <> v_tasks[b.n]
                   OR b.run_id <> b.active_run_id THEN 'run_mismatch'
              WHEN b.status IN ('pending', 'running') THEN 'task_active'
              WHEN b.doubt IS NOT NULL AND NOT coalesce(p_allow_unsettled[b.n], false) THEN 'unsettled_operations'
              ELSE 'created' END AS outcome
          FROM (SELECT g.n, q.outcome AS first_outcome, q.digest = p_digest[g.n] AND q.verb = 'retry' AS same,
                       q.run_id AS known_run_id, q.detail AS known_detail, k.active_run_id, r.run_id, r.tenant_id, r.task_id,
                       r.status,
                       CASE WHEN r.run_id IS NOT NULL THEN @schema@.in_doubt(r.run_id) END AS doubt,
                       CASE WHEN p_fresh[g.n] AND r.run_id IS NOT NULL THEN
                           (SELECT array_agg(o.operation_id ORDER BY o.operation_id)
                            FROM @schema@.chain_of(r.first_run_id) AS c(run_id)
                            JOIN @schema@.tool_operations o ON o.run_id = c.run_id
                            WHERE o.status = 'succeeded' AND o.adopted_from IS NULL) END AS again
                FROM generate_series(1, v_n) AS g(n)
                LEFT JOIN @schema@.requests q ON q.tenant_id = p_tenant[g.n] AND q.request_key = v_keys[g.n]
                LEFT JOIN @schema@.agent_tasks k ON k.tenant_id = p_tenant[g.n] AND k.task_id = v_tasks[g.n]
                LEFT JOIN @schema@.agent_runs r ON r.run_id = coalesce(p_run_id[g.n], k.active_run_id)
                OFFSET 0) b ORDER BY b.n OFFSET 0) d;

    -- Write.
    IF v_new IS NOT NULL THEN
        SELECT array_agg(p_new_run_id[k.n] ORDER BY k.ord) AS run_ids, array_agg(r.tenant_id ORDER BY k.ord) AS tenants,
               array_agg(r.task_id ORDER BY k.ord) AS tasks, array_agg(r.handler ORDER BY k.ord) AS handlers,
               array_agg(r.priority ORDER BY k.ord) AS priorities, array_agg(r.max_attempts ORDER BY k.ord) AS attempts,
               array_agg(CASE WHEN r.deadline > t THEN r.deadline END ORDER BY k.ord) AS deadlines,
               array_agg(NULL::timestamptz) AS not_before, array_agg(r.first_run_id ORDER BY k.ord) AS firsts,
               array_agg(r.run_id ORDER BY k.ord) AS prevs, array_agg(coalesce(p_fresh[k.n], false) ORDER BY k.ord) AS fresh,
               array_agg(d.input ORDER BY k.ord) AS inputs, array_agg(d.labels ORDER BY k.ord) AS labels,
               array_agg(coalesce(p_traceparent[k.n], d.traceparent) ORDER BY k.ord) AS traceparents,
               array_agg(CASE WHEN p_traceparent[k.n] IS NULL THEN d.tracestate ELSE p_tracestate[k.n] END
                         ORDER BY k.ord) AS tracestates,
               array_agg(v_detail[k.n] ORDER BY k.ord) AS details
        INTO h
        FROM unnest(v_new) WITH ORDINALITY AS k(n, ord)
        JOIN @schema@.agent_runs r ON r.run_id = v_prev[k.n]
        JOIN @schema@.run_data d ON d.run_id = r.run_id;
        PERFORM @schema@.create_runs(t, h.run_ids, h.tenants, h.tasks, h.handlers, h.priorities, h.attempts, h.deadlines,
            h.not_before, h.firsts, h.prevs, h.fresh, h.inputs, h.labels, h.traceparents, h.tracestates, h.details);
    END IF;
    PERFORM @schema@.keep_requests(t, 'retry', array_agg(p_tenant[g.n] ORDER BY g.n), array_agg(v_keys[g.n] ORDER BY g.n),
        array_agg(p_digest[g.n] ORDER BY g.n), array_agg(p_source[g.n] ORDER BY g.n),
        array_agg(coalesce(v_tasks[g.n], '') ORDER BY g.n), array_agg(v_run[g.n] ORDER BY g.n),
        array_agg(v_outcome[g.n] ORDER BY g.n), array_agg(v_detail[g.n] ORDER BY g.n), array_agg(p_by[g.n] ORDER BY g.n))
    FROM generate_series(1, v_n) AS g(n) WHERE v_outcome[g.n] NOT IN ('invalid', 'duplicate', 'request_conflict');

    RETURN QUERY
    SELECT g.n, v_outcome[g.n], v_first[g.n], v_run[g.n], y.run_id IS NOT NULL, coalesce(l.epoch, 0),
           CASE WHEN v_detail[g.n] ? 'operations'
                THEN ARRAY(SELECT jsonb_array_elements_text(v_detail[g.n] -> 'operations')) END,
           CASE WHEN v_detail[g.n] ? 'again'
                THEN ARRAY(SELECT jsonb_array_elements_text(v_detail[g.n] -> 'again')) END
    FROM generate_series(1, v_n) AS g(n)
    LEFT JOIN @schema@.ready y ON y.run_id = v_run[g.n] AND v_outcome[g.n] IN ('created', 'duplicate')
    LEFT JOIN @schema@.worker_leases l ON l.run_id = v_run[g.n];
END $$;
