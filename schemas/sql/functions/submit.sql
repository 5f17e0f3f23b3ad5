-- submit: records that ask for a run. One item a record; its request key is answered once and for ever.  interface; worker
--
--   p_tenant, p_task, p_key, p_own_key, p_digest, p_source, p_by   the record: p_own_key says that p_key is the producer's
--                      own request_id (else it is the record's position in Kafka, a space that producers cannot write)
--   p_reject           not NULL: found invalid before SQL; recorded as such, with one submission.rejected event
--   p_handler … p_tracestate   the run to make. p_run_id is made by the caller, the same when the batch is repeated
--   p_cancel_previous  cancels the task's active run, unless an operation of it may have been sent and is not settled
--                      (p_allow_unsettled: all the same)
--
-- Outcomes: created; duplicate (first_outcome, run_id and detail are the first delivery's); request_conflict (the key was
--           used with another content); task_active, unsettled_operations, invalid (detail says what).
--           A redelivery (same source) emits nothing; another record with a producer's key emits submission.duplicate,
--           once. Refusals emit submission.rejected, once.
-- due, epoch: the run may be acquired now and would get epoch + 1.
-- A cancel that waited for its task is applied to the new run.
-- Errors: 22023, 25001; 55P03; 40001 when another transaction used one of the keys meanwhile: repeat the call.
-- Locks: tasks, requests that wait for them, runs and operations of what is cancelled; then inserts, requests in key order.
--        A waiting request is locked under its task's lock; the sweep, its only other taker, skips what is locked.
-- Tables: control, requests, agent_tasks, agent_runs, run_data, worker_leases, ready, timers, tool_operations,
--         run_history, outbox_events.
CREATE OR REPLACE FUNCTION @iface@.submit(
    p_tenant text[], p_task text[], p_key text[], p_own_key boolean[], p_digest text[], p_source text[], p_by text[],
    p_reject jsonb[], p_handler text[], p_run_id uuid[], p_input jsonb[], p_priority integer[],
    p_not_before timestamptz[], p_deadline timestamptz[], p_max_attempts integer[], p_cancel_previous boolean[],
    p_allow_unsettled boolean[], p_labels jsonb[], p_traceparent text[], p_tracestate text[])
RETURNS TABLE (item integer, outcome text, first_outcome text, run_id uuid, due boolean, epoch bigint, detail jsonb)
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
    v_n integer := @schema@.batch_check('submit', ARRAY[cardinality(p_tenant), cardinality(p_task), cardinality(p_key),
        cardinality(p_own_key), cardinality(p_digest), cardinality(p_source), cardinality(p_by), cardinality(p_reject),
        cardinality(p_handler), cardinality(p_run_id), cardinality(p_input), cardinality(p_priority),
        cardinality(p_not_before), cardinality(p_deadline), cardinality(p_max_attempts), cardinality(p_cancel_previous),
        cardinality(p_allow_unsettled), cardinality(p_labels), cardinality(p_traceparent), cardinality(p_tracestate)]);
    v_keys      text[] := @schema@.request_keys(p_key, p_own_key);
    v_max       bigint;
    v_bad       text[];    -- why an item is invalid, from what it says alone
    v_nameless  boolean[]; -- nothing to record it under
    v_made      integer[]; -- items whose task did not exist before
    v_prev      uuid[];    -- by item: the active run that it would cancel
    v_outcome   text[];
    v_first     text[];
    v_run       uuid[];
    v_detail    jsonb[];
    v_news      boolean[]; -- this record was never seen: its event is due, its row is to be written
    v_new       integer[];
    v_cancel    integer[];
    t           timestamptz;
    h           record;
BEGIN
    PERFORM @schema@.check_records('submit', p_tenant, p_task, v_keys);
    SELECT c.max_output_bytes INTO STRICT v_max FROM @schema@.control c WHERE c.the_one;
    SELECT array_agg(d.nameless ORDER BY d.n), array_agg(CASE
               WHEN d.nameless THEN 'tenant, task, request key and digest must be given and within their lengths'
               WHEN p_reject[d.n] IS NOT NULL THEN coalesce(p_reject[d.n] ->> 'detail', 'rejected')
               WHEN p_handler[d.n] IS NULL OR p_run_id[d.n] IS NULL THEN 'handler and run_id must be given'
               WHEN p_max_attempts[d.n] < 1 THEN 'max_attempts must be positive'
               WHEN pg_column_size(p_labels[d.n]) > v_max THEN 'the labels are larger than ' || v_max || ' bytes'
               WHEN pg_column_size(p_input[d.n]) > v_max THEN 'the input is larger than ' || v_max || ' bytes'
               END ORDER BY d.n)
    INTO v_nameless, v_bad
    FROM (SELECT g.n, NOT coalesce(length(p_tenant[g.n]) BETWEEN 1 AND 64 AND length(p_task[g.n]) BETWEEN 1 AND 200
                                   AND length(v_keys[g.n]) BETWEEN 1 AND 1000 AND p_digest[g.n] IS NOT NULL, false) AS nameless
          FROM generate_series(1, v_n) AS g(n)) d;

    -- Lock. A new task is its own lock: whoever else makes it waits here for us. It already names its run; the run is
    -- made below, or the task goes again. (A run_id that is somebody else's names no run of this task; making it fails.)
    WITH made AS (
        INSERT INTO @schema@.agent_tasks (tenant_id, task_id, active_run_id)
        SELECT p_tenant[g.n], p_task[g.n], p_run_id[g.n]
        FROM generate_series(1, v_n) AS g(n)
        LEFT JOIN @schema@.requests q ON q.tenant_id = p_tenant[g.n] AND q.request_key = v_keys[g.n]
        LEFT JOIN @schema@.agent_tasks k ON k.tenant_id = p_tenant[g.n] AND k.task_id = p_task[g.n]
        WHERE v_bad[g.n] IS NULL AND q.tenant_id IS NULL AND k.tenant_id IS NULL
        ORDER BY p_tenant[g.n], p_task[g.n]
        ON CONFLICT DO NOTHING
        RETURNING active_run_id)
    SELECT array_agg(array_position(p_run_id, m.active_run_id)) INTO v_made FROM made m;
    PERFORM 1 FROM generate_series(1, v_n) AS g(n)
    JOIN @schema@.agent_tasks k ON k.tenant_id = p_tenant[g.n] AND k.task_id = p_task[g.n]
    WHERE v_bad[g.n] IS NULL
    ORDER BY k.tenant_id, k.task_id FOR NO KEY UPDATE OF k;
    PERFORM 1 FROM generate_series(1, v_n) AS g(n)
    JOIN @schema@.requests q ON q.tenant_id = p_tenant[g.n] AND q.task_id = p_task[g.n] AND q.outcome = 'waiting'
    WHERE v_bad[g.n] IS NULL
    ORDER BY q.tenant_id, q.request_key FOR NO KEY UPDATE OF q;
    IF true = ANY (p_cancel_previous) THEN
        SELECT array_agg(r.run_id ORDER BY g.n) INTO v_prev
        FROM generate_series(1, v_n) AS g(n)
        LEFT JOIN @schema@.agent_tasks k ON k.tenant_id = p_tenant[g.n] AND k.task_id = p_task[g.n]
                                        AND p_cancel_previous[g.n] AND v_bad[g.n] IS NULL
        LEFT JOIN @schema@.agent_runs r ON r.run_id = k.active_run_id AND r.tenant_id = k.tenant_id AND r.task_id = k.task_id;
        PERFORM 1 FROM @schema@.agent_runs r WHERE r.run_id = ANY (v_prev) ORDER BY r.run_id FOR NO KEY UPDATE;
        PERFORM 1 FROM @schema@.tool_operations o
        WHERE o.run_id = ANY (v_prev) AND o.status IN ('prepared', 'dispatching', 'unknown')
        ORDER BY o.operation_id FOR NO KEY UPDATE;
    END IF;
    t := clock_timestamp();

    -- Decide.
    SELECT array_agg(d.outcome), array_agg(d.first_outcome),
           array_agg(CASE d.outcome WHEN 'created' THEN p_run_id[d.n] WHEN 'task_active' THEN d.active_run_id
                                    WHEN 'unsettled_operations' THEN d.active_run_id
                                    WHEN 'invalid' THEN NULL ELSE d.known_run_id END),
           array_agg(CASE d.outcome
               WHEN 'duplicate' THEN d.known_detail
               WHEN 'request_conflict' THEN jsonb_build_object('detail', 'this request_id was used with another content')
               WHEN 'invalid' THEN coalesce(p_reject[d.n], jsonb_build_object('reason', 'invalid', 'detail', v_bad[d.n]))
               WHEN 'task_active' THEN jsonb_build_object('run_id', d.active_run_id)
               WHEN 'unsettled_operations' THEN jsonb_build_object('run_id', d.active_run_id, 'operations', to_jsonb(d.doubt))
               WHEN 'created' THEN CASE WHEN d.active_run_id IS NOT NULL THEN jsonb_strip_nulls(jsonb_build_object(
                        'cancelled_run_id', d.active_run_id, 'allow_unsettled', to_jsonb(d.doubt), 'by', p_by[d.n])) END
               END),
           array_agg(NOT v_nameless[d.n] AND CASE
               WHEN d.outcome IN ('duplicate', 'request_conflict')
                   THEN coalesce(p_own_key[d.n], false) AND p_source[d.n] IS NOT NULL
                        AND p_source[d.n] IS DISTINCT FROM d.known_source AND NOT d.seen
               ELSE true END),
           array_agg(d.n) FILTER (WHERE d.outcome = 'created'),
           array_agg(d.n) FILTER (WHERE d.outcome = 'created' AND d.active_run_id IS NOT NULL)
    INTO v_outcome, v_first, v_run, v_detail, v_news, v_new, v_cancel
    FROM (SELECT b.*, CASE
              WHEN v_nameless[b.n] THEN 'invalid'
              WHEN b.first_outcome IS NOT NULL THEN CASE WHEN b.same THEN 'duplicate' ELSE 'request_conflict' END
              WHEN v_bad[b.n] IS NOT NULL THEN 'invalid'
              WHEN b.active_run_id IS NOT NULL AND NOT coalesce(p_cancel_previous[b.n], false) THEN 'task_active'
              WHEN b.doubt IS NOT NULL AND NOT coalesce(p_allow_unsettled[b.n], false) THEN 'unsettled_operations'
              ELSE 'created' END AS outcome
          FROM (SELECT g.n, q.outcome AS first_outcome, q.digest = p_digest[g.n] AND q.verb = 'submit' AS same,
                       q.run_id AS known_run_id, q.source AS known_source, q.detail AS known_detail,
                       s.tenant_id IS NOT NULL AS seen, r.run_id AS active_run_id,
                       CASE WHEN p_cancel_previous[g.n] AND r.run_id IS NOT NULL THEN @schema@.in_doubt(r.run_id) END AS doubt
                FROM generate_series(1, v_n) AS g(n)
                LEFT JOIN @schema@.requests q ON q.tenant_id = p_tenant[g.n] AND q.request_key = v_keys[g.n]
                LEFT JOIN @schema@.requests s ON s.tenant_id = p_tenant[g.n] AND s.request_key = 'd:' || p_source[g.n]
                LEFT JOIN @schema@.agent_tasks k ON k.tenant_id = p_tenant[g.n] AND k.task_id = p_task[g.n]
                LEFT JOIN @schema@.agent_runs r ON r.run_id = k.active_run_id AND r.status IN ('pending', 'running')
                                                AND r.tenant_id = k.tenant_id AND r.task_id = k.task_id
                OFFSET 0) b ORDER BY b.n OFFSET 0) d;

    -- Write: first what ends, so that its last event comes before anything of the new run.
    IF v_cancel IS NOT NULL THEN
        SELECT array_agg((v_detail[k.n] ->> 'cancelled_run_id')::uuid ORDER BY k.ord) AS run_ids,
               array_agg('replaced by a new submission'::text) AS reasons, array_agg(p_by[k.n] ORDER BY k.ord) AS bys
        INTO h FROM unnest(v_cancel) WITH ORDINALITY AS k(n, ord);
        PERFORM @schema@.cancel_runs(t, h.run_ids, h.reasons, h.bys);
    END IF;
    IF v_made IS NOT NULL AND EXISTS (SELECT 1 FROM unnest(v_made) AS m(n) WHERE v_outcome[m.n] <> 'created') THEN
        DELETE FROM @schema@.agent_tasks k USING unnest(v_made) AS m(n)
        WHERE v_outcome[m.n] <> 'created' AND k.tenant_id = p_tenant[m.n] AND k.task_id = p_task[m.n];
    END IF;
    IF v_new IS NOT NULL THEN
        PERFORM @schema@.create_runs(t, array_agg(p_run_id[k.n] ORDER BY k.ord), array_agg(p_tenant[k.n] ORDER BY k.ord),
            array_agg(p_task[k.n] ORDER BY k.ord), array_agg(p_handler[k.n] ORDER BY k.ord),
            array_agg(p_priority[k.n] ORDER BY k.ord), array_agg(p_max_attempts[k.n] ORDER BY k.ord),
            array_agg(p_deadline[k.n] ORDER BY k.ord), array_agg(p_not_before[k.n] ORDER BY k.ord),
            array_agg(NULL::uuid), array_agg(NULL::uuid), array_agg(false), array_agg(p_input[k.n] ORDER BY k.ord),
            array_agg(p_labels[k.n] ORDER BY k.ord), array_agg(p_traceparent[k.n] ORDER BY k.ord),
            array_agg(p_tracestate[k.n] ORDER BY k.ord), array_agg(v_detail[k.n] ORDER BY k.ord))
        FROM unnest(v_new) WITH ORDINALITY AS k(n, ord);
    END IF;
    PERFORM @schema@.keep_requests(t, 'submit',
        array_agg(p_tenant[g.n] ORDER BY g.n),
        array_agg(CASE WHEN v_outcome[g.n] IN ('duplicate', 'request_conflict') THEN 'd:' || p_source[g.n]
                       ELSE v_keys[g.n] END ORDER BY g.n),
        array_agg(p_digest[g.n] ORDER BY g.n), array_agg(p_source[g.n] ORDER BY g.n), array_agg(p_task[g.n] ORDER BY g.n),
        array_agg(v_run[g.n] ORDER BY g.n), array_agg(v_outcome[g.n] ORDER BY g.n), array_agg(v_detail[g.n] ORDER BY g.n),
        array_agg(p_by[g.n] ORDER BY g.n))
    FROM generate_series(1, v_n) AS g(n) WHERE v_news[g.n];

    SELECT array_agg(CASE WHEN v_outcome[g.n] = 'duplicate' THEN v_run[g.n] END ORDER BY g.n) AS run_ids,
           array_agg(p_tenant[g.n] ORDER BY g.n) AS tenants, array_agg(p_task[g.n] ORDER BY g.n) AS tasks,
           array_agg(CASE WHEN v_outcome[g.n] = 'duplicate' THEN 'submission.duplicate' ELSE 'submission.rejected' END
                     ORDER BY g.n) AS types,
           array_agg(0::bigint) AS zeros,
           array_agg(CASE WHEN v_outcome[g.n] = 'duplicate'
                 THEN jsonb_build_object('submission', jsonb_strip_nulls(jsonb_build_object(
                     'request_id', substr(v_keys[g.n], 3), 'first_outcome', v_first[g.n], 'source', p_source[g.n])))
                 ELSE jsonb_build_object('failure', jsonb_strip_nulls(jsonb_build_object(
                     'reason', v_outcome[g.n], 'request_id', CASE WHEN p_own_key[g.n] THEN substr(v_keys[g.n], 3) END,
                     'source', p_source[g.n])) || coalesce(v_detail[g.n], '{}')) END ORDER BY g.n) AS bodies
    INTO h
    FROM generate_series(1, v_n) AS g(n) WHERE v_news[g.n] AND v_outcome[g.n] <> 'created';
    PERFORM @schema@.emit(t, h.run_ids, h.tenants, h.tasks, h.types, h.zeros, h.zeros, h.bodies);

    -- Controls that came before their task.
    IF v_new IS NOT NULL THEN
        PERFORM @schema@.apply_waiting(t, array_agg(p_tenant[k.n] ORDER BY k.ord), array_agg(p_task[k.n] ORDER BY k.ord),
                                       array_agg(p_run_id[k.n] ORDER BY k.ord))
        FROM unnest(v_new) WITH ORDINALITY AS k(n, ord);
    END IF;

    RETURN QUERY
    SELECT g.n, v_outcome[g.n], v_first[g.n], v_run[g.n], y.run_id IS NOT NULL, coalesce(l.epoch, 0), v_detail[g.n]
    FROM generate_series(1, v_n) AS g(n)
    LEFT JOIN @schema@.ready y ON y.run_id = v_run[g.n] AND v_outcome[g.n] IN ('created', 'duplicate')
    LEFT JOIN @schema@.worker_leases l ON l.run_id = v_run[g.n];
END $$;
