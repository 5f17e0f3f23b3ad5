-- commit: the protected write. One item a run: a checkpoint and, optionally, intents, a wait, events, an end, a release;
-- all of it or none.                                                                                 interface; worker
--
--   p_run_ids, p_owners, p_epochs, p_revisions   who writes, and the revision the write expects
--   p_commit_ids, p_digests   of this attempted write, the same when it is repeated; digest of its whole content
--   p_checkpoints             NULL: unchanged
--   p_finish, p_outputs       NULL, succeeded, failed; its output or failure
--   p_release                 gives the lease back; without a wait the run is ready at once
--   p_wait_mode, p_wait_signal, p_wait_until   parks the run (and so releases it): all / any of the operations in p_w_…,
--                             none: only the signal or the time. Any satisfied part wakes it
--   p_retry_ms                the handler failed and may be tried again after this time; p_outputs has the failure. The
--                             max_attempts-th failure in a row ends the run
--   p_i_…  intents   p_w_…  operations waited for   p_e_…  the step's own events   p_d_…  operations that may outlive the
--   run    p_s_…  signals that this step has answered. Each row names its item by the 1-based place in the batch
--
-- Outcomes, in the order in which they are looked for:
--   ok                also for a commit_id that was applied before, by this epoch or the one before (its revision is said)
--   invalid           the detail says what; or the commit_id was used with another content
--   superseded        an epoch before the previous one: whether it was applied is in history
--   lease_lost        unknown run, other owner or epoch, or expired
--   not_running       the run has ended
--   revision_conflict the state is another one; checkpoint has it
--   intent_conflict, effect_in_doubt, open_operations, event_too_large
-- adopted: the item's intents that an earlier run of the submission has already answered; they are not sent.
-- due: the run may be acquired now (woke_reason: why).
-- Errors: 22023, 25001; 55P03 when a row stays locked.
-- Locks: leases, runs, operations (of runs that end, or register a version above 1, or detach), signals; ready, timers.
-- Tables: control, worker_leases, agent_runs, run_data, tool_operations, signals, ready, timers, outbox_events,
--         run_history, refusals. Never agent_tasks.
CREATE OR REPLACE FUNCTION @iface@.commit(
    p_run_ids uuid[], p_owners text[], p_epochs bigint[], p_revisions bigint[], p_commit_ids uuid[], p_digests text[],
    p_checkpoints jsonb[], p_finish text[], p_outputs jsonb[], p_release boolean[],
    p_wait_mode text[], p_wait_signal text[], p_wait_until timestamptz[], p_retry_ms bigint[],
    p_i_item integer[], p_i_operation_id text[], p_i_step text[], p_i_version integer[], p_i_tool text[],
    p_i_digest text[], p_i_body jsonb[], p_i_capability text[], p_i_declaration jsonb[], p_i_external_key text[],
    p_i_after_settled boolean[], p_i_compensates text[],
    p_w_item integer[], p_w_operation_id text[],
    p_e_item integer[], p_e_type text[], p_e_body jsonb[],
    p_d_item integer[], p_d_operation_id text[],
    p_s_item integer[], p_s_signal_id text[])
RETURNS TABLE (item integer, outcome text, revision bigint, current_epoch bigint, current_owner text, checkpoint jsonb,
    due boolean, woke_reason text, detail text, adopted text[])
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
    v_n integer := @schema@.batch_check('commit', ARRAY[cardinality(p_run_ids), cardinality(p_owners),
        cardinality(p_epochs), cardinality(p_revisions), cardinality(p_commit_ids), cardinality(p_digests),
        cardinality(p_checkpoints), cardinality(p_finish), cardinality(p_outputs), cardinality(p_release),
        cardinality(p_wait_mode), cardinality(p_wait_signal), cardinality(p_wait_until), cardinality(p_retry_ms)]);
    c           @schema@.control%ROWTYPE;
    t           timestamptz;
    v_op_runs   uuid[];            -- runs whose open operations this batch may change or must judge
    i           record;            -- verdicts of the intents
    v_none      jsonb := '{}';
    v_ever      constant bigint := 3155760000000; -- ms; a hundred years
    -- What the parts say, by item ("17" → …) or by operation_id.
    v_i_bad     jsonb := '{}';     -- item → [outcome, detail]
    v_i_new     jsonb := '{}';     -- operation_id → item, newly registered and not adopted
    v_i_known   jsonb := '{}';     -- operation_id → item, all of them
    v_i_gone    jsonb := '{}';     -- operation_id → true, cancelled by a higher version
    v_i_open    jsonb := '{}';     -- item → true, registers something that has to be done
    v_w         jsonb := '{}';     -- item → [operation_id …]
    v_w_bad     jsonb := '{}';     -- item → detail
    v_e_bad     jsonb := '{}';     -- item → [outcome, detail]
    v_d         jsonb := '{}';     -- operation_id → item
    v_d_bad     jsonb := '{}';     -- item → detail
    v_adopted   jsonb := '{}';     -- item → [operation_id …]
    -- The decision, by item.
    v_outcome   text[];
    v_detail    text[];
    v_revision  bigint[];
    v_epoch     bigint[];
    v_owner     text[];
    v_end       text[];            -- status that an ok item ends its run with
    v_write     boolean[];         -- to be written: ok, and not applied before
    v_park      boolean[];
    v_ok        integer[];         -- items to be written
    v_ended     integer[];
    v_ended_ids uuid[];
    v_parked    integer[];
    v_left      integer[];         -- items that give the lease back
    h           record;
BEGIN
    PERFORM @schema@.check_group('commit', 'intents', ARRAY[cardinality(p_i_item), cardinality(p_i_operation_id),
        cardinality(p_i_step), cardinality(p_i_version), cardinality(p_i_tool), cardinality(p_i_digest),
        cardinality(p_i_body), cardinality(p_i_capability), cardinality(p_i_declaration), cardinality(p_i_external_key),
        cardinality(p_i_after_settled), cardinality(p_i_compensates)], p_i_item, v_n);
    PERFORM @schema@.check_group('commit', 'waits', ARRAY[cardinality(p_w_item), cardinality(p_w_operation_id)],
                                 p_w_item, v_n);
    PERFORM @schema@.check_group('commit', 'events', ARRAY[cardinality(p_e_item), cardinality(p_e_type),
                                 cardinality(p_e_body)], p_e_item, v_n);
    PERFORM @schema@.check_group('commit', 'detached', ARRAY[cardinality(p_d_item), cardinality(p_d_operation_id)],
                                 p_d_item, v_n);
    PERFORM @schema@.check_group('commit', 'signals', ARRAY[cardinality(p_s_item), cardinality(p_s_signal_id)],
                                 p_s_item, v_n);
    IF (SELECT count(DISTINCT x.run_id) <> count(x.run_id) FROM unnest(p_run_ids) AS x(run_id)) THEN
        RAISE EXCEPTION 'commit: a run is named twice' USING ERRCODE = '22023';
    END IF;
    SELECT * INTO STRICT c FROM @schema@.control k WHERE k.the_one;

    -- Lock.
    PERFORM 1 FROM @schema@.worker_leases l WHERE l.run_id = ANY (p_run_ids) ORDER BY l.run_id FOR NO KEY UPDATE;
    PERFORM 1 FROM @schema@.agent_runs r WHERE r.run_id = ANY (p_run_ids) ORDER BY r.run_id FOR NO KEY UPDATE;
    SELECT array_agg(DISTINCT x.run_id) INTO v_op_runs
    FROM (SELECT p_run_ids[g.n] FROM generate_series(1, v_n) AS g(n)
          WHERE p_finish[g.n] IS NOT NULL OR p_retry_ms[g.n] IS NOT NULL
          UNION ALL SELECT p_run_ids[u.item] FROM unnest(p_i_item, p_i_version) AS u(item, version) WHERE u.version > 1
          UNION ALL SELECT p_run_ids[u.item] FROM unnest(p_d_item) AS u(item)) AS x(run_id);
    PERFORM 1 FROM @schema@.tool_operations o
    WHERE o.run_id = ANY (v_op_runs) AND o.status IN ('prepared', 'dispatching', 'unknown')
    ORDER BY o.operation_id FOR NO KEY UPDATE;
    IF cardinality(p_s_item) > 0 THEN
        PERFORM 1 FROM unnest(p_s_item, p_s_signal_id) AS u(item, signal_id)
        JOIN @schema@.agent_runs r ON r.run_id = p_run_ids[u.item]
        JOIN @schema@.signals s ON s.tenant_id = r.tenant_id AND s.task_id = r.task_id AND s.signal_id = u.signal_id
        ORDER BY s.tenant_id, s.task_id, s.signal_id FOR NO KEY UPDATE OF s;
    END IF;
    t := clock_timestamp();

    -- Decide: first what the parts say,
    IF cardinality(p_i_item) > 0 THEN
        i := @schema@.commit_intents(p_run_ids, p_i_item, p_i_operation_id, p_i_step, p_i_version, p_i_tool, p_i_digest,
            p_i_body, p_i_capability, p_i_external_key, p_i_after_settled, p_i_compensates, c.max_body_bytes);
        SELECT coalesce(jsonb_object_agg(p_i_item[g.n], jsonb_build_array(i.o_verdict[g.n], i.o_detail[g.n])
                            ORDER BY g.n DESC)
                        FILTER (WHERE i.o_verdict[g.n] NOT IN ('new', 'same')), v_none),
               coalesce(jsonb_object_agg(p_i_operation_id[g.n], p_i_item[g.n])
                        FILTER (WHERE i.o_verdict[g.n] = 'new' AND i.o_adopted[g.n] IS NULL), v_none),
               coalesce(jsonb_object_agg(p_i_operation_id[g.n], p_i_item[g.n])
                        FILTER (WHERE p_i_operation_id[g.n] IS NOT NULL), v_none),
               coalesce(jsonb_object_agg(p_i_item[g.n], true)
                        FILTER (WHERE i.o_verdict[g.n] = 'new' AND i.o_adopted[g.n] IS NULL), v_none)
        INTO v_i_bad, v_i_new, v_i_known, v_i_open
        FROM generate_series(1, cardinality(p_i_item)) AS g(n);
        SELECT coalesce(jsonb_object_agg(u.id, true), v_none) INTO v_i_gone FROM unnest(i.o_replaces) AS u(id);
    END IF;
    IF cardinality(p_w_item) > 0 THEN
        SELECT coalesce(jsonb_object_agg(d.item, d.ids), v_none),
               coalesce(jsonb_object_agg(d.item, d.bad) FILTER (WHERE d.bad IS NOT NULL), v_none)
        INTO v_w, v_w_bad
        FROM (SELECT u.item, jsonb_agg(u.operation_id ORDER BY u.ord) AS ids,
                     min('waits for ' || coalesce(u.operation_id, 'NULL') || ', which is no operation of this run')
                         FILTER (WHERE NOT coalesce((v_i_known -> u.operation_id)::integer = u.item, false)
                                   AND o.operation_id IS NULL) AS bad
              FROM unnest(p_w_item, p_w_operation_id) WITH ORDINALITY AS u(item, operation_id, ord)
              LEFT JOIN @schema@.tool_operations o
                     ON o.operation_id = u.operation_id AND o.run_id = p_run_ids[u.item]
              GROUP BY u.item) d;
    END IF;
    IF cardinality(p_e_item) > 0 THEN
        SELECT coalesce(jsonb_object_agg(d.item, d.bad), v_none) INTO v_e_bad
        FROM (SELECT DISTINCT ON (e.item) e.item, e.bad
              FROM (SELECT u.item, u.ord, CASE
                        WHEN coalesce(u.type, '') = '' OR u.type ~* '^(run|operation|submission)\.' OR u.body IS NULL
                            THEN jsonb_build_array('invalid', 'an event of type ' || coalesce(u.type, 'NULL'))
                        WHEN octet_length(u.body::text) > c.max_event_bytes
                            THEN jsonb_build_array('event_too_large', 'an event of ' || octet_length(u.body::text)
                                                   || ' bytes, at most ' || c.max_event_bytes) END AS bad
                    FROM unnest(p_e_item, p_e_type, p_e_body) WITH ORDINALITY AS u(item, type, body, ord)) e
              WHERE e.bad IS NOT NULL ORDER BY e.item, e.ord) d;
    END IF;
    IF cardinality(p_d_item) > 0 THEN
        SELECT coalesce(jsonb_object_agg(u.operation_id, u.item) FILTER (WHERE o.operation_id IS NOT NULL), v_none),
               coalesce(jsonb_object_agg(u.item, 'detaches ' || coalesce(u.operation_id, 'NULL')
                                         || ', which is no operation of this run')
                        FILTER (WHERE o.operation_id IS NULL), v_none)
        INTO v_d, v_d_bad
        FROM unnest(p_d_item, p_d_operation_id) AS u(item, operation_id)
        LEFT JOIN @schema@.tool_operations o ON o.operation_id = u.operation_id AND o.run_id = p_run_ids[u.item];
    END IF;

    -- then every item: exactly one outcome. (OFFSET 0 keeps an expression from being evaluated wherever it is named.)
    SELECT array_agg(d.outcome),
           array_agg(CASE d.outcome
               WHEN 'invalid' THEN coalesce(d.why, v_w_bad ->> d.n::text, v_d_bad ->> d.n::text,
                                            v_i_bad -> d.n::text ->> 1, v_e_bad -> d.n::text ->> 1)
               WHEN 'open_operations' THEN coalesce(d.open, 'an intent of this commit')
               WHEN 'event_too_large' THEN v_e_bad -> d.n::text ->> 1
               WHEN 'intent_conflict' THEN v_i_bad -> d.n::text ->> 1
               WHEN 'effect_in_doubt' THEN v_i_bad -> d.n::text ->> 1 END),
           array_agg(d.revision), array_agg(d.epoch), array_agg(d.owner),
           array_agg(d.ends),
           array_agg(d.outcome = 'ok' AND d.applied IS NULL),
           array_agg(d.ends IS NULL AND d.parks),
           array_agg(d.n) FILTER (WHERE d.outcome = 'ok' AND d.applied IS NULL),
           array_agg(d.n) FILTER (WHERE d.outcome = 'ok' AND d.applied IS NULL AND d.ends IS NOT NULL),
           array_agg(p_run_ids[d.n]) FILTER (WHERE d.outcome = 'ok' AND d.applied IS NULL AND d.ends IS NOT NULL),
           array_agg(d.n) FILTER (WHERE d.outcome = 'ok' AND d.applied IS NULL AND d.ends IS NULL AND d.parks),
           array_agg(d.n) FILTER (WHERE d.outcome = 'ok' AND d.applied IS NULL AND d.leaves)
    INTO v_outcome, v_detail, v_revision, v_epoch, v_owner, v_end, v_write, v_park, v_ok, v_ended, v_ended_ids, v_parked, v_left
    FROM (SELECT b.*, CASE
              WHEN b.why = 'a member is missing' THEN 'invalid'
              WHEN b.applied IS NOT NULL AND b.applied <> 'same' THEN 'invalid'
              WHEN b.applied IS NOT NULL THEN 'ok'
              WHEN b.run_id IS NULL THEN 'lease_lost'
              WHEN p_epochs[b.n] < b.prev_commit_epoch THEN 'superseded'
              WHEN NOT b.holds THEN 'lease_lost'
              WHEN b.status <> 'running' THEN 'not_running'
              WHEN p_revisions[b.n] <> b.stored_revision THEN 'revision_conflict'
              WHEN b.why IS NOT NULL OR v_w_bad ? b.n::text OR v_d_bad ? b.n::text THEN 'invalid'
              WHEN v_i_bad ? b.n::text THEN v_i_bad -> b.n::text ->> 0
              WHEN v_e_bad ? b.n::text THEN v_e_bad -> b.n::text ->> 0
              WHEN p_finish[b.n] = 'succeeded' AND (b.open IS NOT NULL OR v_i_open ? b.n::text) THEN 'open_operations'
              ELSE 'ok' END AS outcome,
              coalesce(b.replayed_revision, b.stored_revision) AS revision,
              b.ends IS NOT NULL OR b.parks OR coalesce(p_release[b.n], false) AS leaves
          FROM (SELECT g.n, r.run_id, r.status, r.revision AS stored_revision, r.prev_commit_epoch, l.epoch, l.owner,
                       coalesce(l.owner = p_owners[g.n] AND l.epoch = p_epochs[g.n] AND l.expires_at > t, false) AS holds,
                       CASE WHEN r.commit_id = p_commit_ids[g.n] AND r.commit_epoch = p_epochs[g.n]
                                THEN CASE WHEN r.commit_digest IS NOT DISTINCT FROM p_digests[g.n] THEN 'same' ELSE 'other' END
                            WHEN r.prev_commit_id = p_commit_ids[g.n] AND r.prev_commit_epoch = p_epochs[g.n]
                                THEN CASE WHEN r.prev_commit_digest IS NOT DISTINCT FROM p_digests[g.n] THEN 'same' ELSE 'other' END
                       END AS applied,
                       CASE WHEN r.commit_id = p_commit_ids[g.n] AND r.commit_epoch = p_epochs[g.n] THEN r.commit_revision
                            WHEN r.prev_commit_id = p_commit_ids[g.n] AND r.prev_commit_epoch = p_epochs[g.n]
                                THEN r.prev_commit_revision END AS replayed_revision,
                       CASE WHEN p_finish[g.n] IS NOT NULL THEN p_finish[g.n]
                            WHEN p_retry_ms[g.n] IS NOT NULL AND r.failures + 1 >= r.max_attempts THEN 'failed' END AS ends,
                       (p_wait_mode[g.n] IS NOT NULL OR p_wait_signal[g.n] IS NOT NULL OR p_wait_until[g.n] IS NOT NULL
                        OR p_retry_ms[g.n] IS NOT NULL) AS parks,
                       CASE WHEN p_run_ids[g.n] IS NULL OR p_owners[g.n] IS NULL OR p_epochs[g.n] IS NULL
                                 OR p_revisions[g.n] IS NULL OR p_commit_ids[g.n] IS NULL THEN 'a member is missing'
                            WHEN (r.commit_id = p_commit_ids[g.n] AND r.commit_epoch = p_epochs[g.n]
                                  AND r.commit_digest IS DISTINCT FROM p_digests[g.n])
                                 OR (r.prev_commit_id = p_commit_ids[g.n] AND r.prev_commit_epoch = p_epochs[g.n]
                                     AND r.prev_commit_digest IS DISTINCT FROM p_digests[g.n])
                                THEN 'this commit_id was applied with another content'
                            WHEN p_finish[g.n] NOT IN ('succeeded', 'failed') THEN 'finish is succeeded or failed'
                            WHEN (p_finish[g.n] IS NOT NULL)::integer + (p_retry_ms[g.n] IS NOT NULL)::integer
                                 + (p_wait_mode[g.n] IS NOT NULL OR p_wait_signal[g.n] IS NOT NULL
                                    OR p_wait_until[g.n] IS NOT NULL)::integer > 1
                                THEN 'more than one of finish, wait and retry'
                            WHEN p_retry_ms[g.n] NOT BETWEEN 0 AND v_ever THEN 'a retry in the past, or never'
                            WHEN p_wait_mode[g.n] NOT IN ('all', 'any', 'none') THEN 'wait_mode is all, any or none'
                            WHEN p_wait_mode[g.n] IN ('all', 'any') AND NOT v_w ? g.n::text THEN 'a wait for no operation'
                            WHEN coalesce(p_wait_mode[g.n], 'none') = 'none' AND v_w ? g.n::text
                                THEN 'operations to wait for without a wait_mode'
                            WHEN p_wait_mode[g.n] = 'none' AND p_wait_signal[g.n] IS NULL AND p_wait_until[g.n] IS NULL
                                THEN 'a wait for nothing'
                            WHEN pg_column_size(p_checkpoints[g.n]) > c.max_body_bytes
                                THEN 'the checkpoint is larger than ' || c.max_body_bytes || ' bytes'
                            WHEN pg_column_size(p_outputs[g.n]) > c.max_output_bytes
                                THEN 'the output is larger than ' || c.max_output_bytes || ' bytes'
                       END AS why,
                       CASE WHEN p_finish[g.n] = 'succeeded' THEN
                           (SELECT string_agg(o.operation_id, ' ' ORDER BY o.operation_id)
                            FROM @schema@.tool_operations o
                            WHERE o.run_id = p_run_ids[g.n] AND NOT v_i_gone ? o.operation_id
                              AND (o.status = 'prepared' OR (o.status = 'unknown' AND o.attempts = o.attempts_not_sent)
                                   OR (o.status IN ('dispatching', 'unknown') AND NOT o.detached
                                       AND NOT v_d ? o.operation_id))) END AS open
                FROM generate_series(1, v_n) AS g(n)
                LEFT JOIN @schema@.agent_runs r ON r.run_id = p_run_ids[g.n]
                LEFT JOIN @schema@.worker_leases l ON l.run_id = p_run_ids[g.n] OFFSET 0) b ORDER BY b.n OFFSET 0) d;

    -- Write: only the successes.
    UPDATE @schema@.agent_runs r
    SET revision = r.revision + 1,
        status = coalesce(v_end[k.n], r.status),
        checkpoint = coalesce(p_checkpoints[k.n], r.checkpoint),
        attempts = 0,
        failures = CASE WHEN p_retry_ms[k.n] IS NOT NULL THEN r.failures + 1
                        WHEN p_finish[k.n] IS NULL AND (p_release[k.n] OR v_park[k.n]) THEN 0
                        ELSE r.failures END,
        wait_mode = CASE WHEN v_park[k.n] THEN coalesce(p_wait_mode[k.n], 'none') END,
        wait_operations = CASE WHEN v_w ? k.n::text
                               THEN ARRAY(SELECT jsonb_array_elements_text(v_w -> k.n::text)) END,
        wait_signal = p_wait_signal[k.n],
        wait_until = CASE WHEN v_end[k.n] IS NOT NULL THEN NULL
                          WHEN p_retry_ms[k.n] IS NOT NULL THEN t + p_retry_ms[k.n] * interval '1 millisecond'
                          ELSE p_wait_until[k.n] END,
        woke_reason = NULL,
        commit_id = p_commit_ids[k.n], commit_epoch = p_epochs[k.n], commit_revision = r.revision + 1,
        commit_digest = p_digests[k.n], updated_at = t
    FROM unnest(v_ok) AS k(n) WHERE r.run_id = p_run_ids[k.n];
    IF v_left IS NOT NULL THEN
        UPDATE @schema@.worker_leases l SET owner = NULL, expires_at = t, updated_at = t
        FROM unnest(v_left) AS k(n) WHERE l.run_id = p_run_ids[k.n];
    END IF;

    IF cardinality(p_i_item) > 0 THEN
        PERFORM @schema@.cancel_operations(t, array_agg(o.operation_id ORDER BY o.operation_id))
        FROM unnest(i.o_replaces) AS u(operation_id)
        JOIN @schema@.tool_operations o ON o.operation_id = u.operation_id
        WHERE v_write[array_position(p_run_ids, o.run_id)];
        INSERT INTO @schema@.tool_operations (operation_id, run_id, step_id, effect_version, tool_name, request_digest,
            request_body, status, remote_id, result, capability, declaration, retention_ms, external_key,
            after_operation, compensates, adopted_from, created_at, updated_at)
        SELECT p_i_operation_id[g.n], p_run_ids[p_i_item[g.n]], p_i_step[g.n], p_i_version[g.n], p_i_tool[g.n],
               p_i_digest[g.n], p_i_body[g.n], CASE WHEN a.operation_id IS NULL THEN 'prepared' ELSE 'succeeded' END,
               a.remote_id, a.result, coalesce(p_i_capability[g.n], 'none'), coalesce(p_i_declaration[g.n], '{}'),
               -- Cut to what can be added to a time: a sum out of range would stop every sweep.
               CASE WHEN jsonb_typeof(p_i_declaration[g.n] -> 'retention_ms') = 'number'
                    THEN trunc(least(greatest((p_i_declaration[g.n] ->> 'retention_ms')::numeric, 0), v_ever))::bigint END,
               p_i_external_key[g.n], i.o_after[g.n], p_i_compensates[g.n], a.operation_id, t, t
        FROM generate_series(1, cardinality(p_i_item)) AS g(n)
        LEFT JOIN @schema@.tool_operations a ON a.operation_id = i.o_adopted[g.n]
        WHERE i.o_verdict[g.n] = 'new' AND v_write[p_i_item[g.n]]
        ORDER BY p_i_operation_id[g.n];
    END IF;
    IF cardinality(p_d_item) > 0 THEN
        UPDATE @schema@.tool_operations o SET detached = true, updated_at = t
        FROM unnest(p_d_item, p_d_operation_id) AS u(item, operation_id)
        WHERE o.operation_id = u.operation_id AND v_write[u.item]
          AND o.status IN ('dispatching', 'unknown') AND NOT o.detached;
    END IF;
    IF cardinality(p_s_item) > 0 THEN
        UPDATE @schema@.signals s SET consumed_by = r.run_id, consumed_at = t
        FROM unnest(p_s_item, p_s_signal_id) AS u(item, signal_id)
        JOIN @schema@.agent_runs r ON r.run_id = p_run_ids[u.item]
        WHERE s.tenant_id = r.tenant_id AND s.task_id = r.task_id AND s.signal_id = u.signal_id
          AND s.consumed_by IS NULL AND coalesce(s.run_id, r.run_id) = r.run_id AND v_write[u.item];
    END IF;
    IF cardinality(p_e_item) > 0 THEN
        SELECT array_agg(r.run_id ORDER BY u.ord) AS run_ids, array_agg(r.tenant_id ORDER BY u.ord) AS tenants,
               array_agg(r.task_id ORDER BY u.ord) AS tasks, array_agg(u.type ORDER BY u.ord) AS types,
               array_agg(p_epochs[u.item] ORDER BY u.ord) AS epochs, array_agg(r.revision ORDER BY u.ord) AS revisions,
               array_agg(u.body ORDER BY u.ord) AS bodies
        INTO h
        FROM unnest(p_e_item, p_e_type, p_e_body) WITH ORDINALITY AS u(item, type, body, ord)
        JOIN @schema@.agent_runs r ON r.run_id = p_run_ids[u.item]
        WHERE v_write[u.item];
        PERFORM @schema@.emit(t, h.run_ids, h.tenants, h.tasks, h.types, h.epochs, h.revisions, h.bodies);
    END IF;

    IF v_ended IS NOT NULL THEN
        -- Cancels what was not sent (only a failed run can have such) before the run's last event.
        PERFORM @schema@.cancel_open(t, v_ended_ids);
        UPDATE @schema@.run_data d
        SET output = CASE WHEN v_end[k.n] = 'succeeded' THEN p_outputs[k.n] END,
            failure = CASE WHEN v_end[k.n] = 'failed' THEN p_outputs[k.n] END
        FROM unnest(v_ended) AS k(n) WHERE d.run_id = p_run_ids[k.n] AND p_outputs[k.n] IS NOT NULL;
        DELETE FROM @schema@.ready y WHERE y.run_id = ANY (v_ended_ids);
        DELETE FROM @schema@.timers m WHERE m.run_id = ANY (v_ended_ids);
        SELECT array_agg(r.tenant_id ORDER BY k.ord) AS tenants, array_agg(r.task_id ORDER BY k.ord) AS tasks,
               array_agg(r.status ORDER BY k.ord) AS statuses, array_agg('running'::text ORDER BY k.ord) AS befores,
               array_agg('run.' || r.status ORDER BY k.ord) AS types,
               array_agg(p_epochs[k.n] ORDER BY k.ord) AS epochs, array_agg(r.revision ORDER BY k.ord) AS revisions,
               array_agg(p_owners[k.n] ORDER BY k.ord) AS owners, array_agg(p_commit_ids[k.n] ORDER BY k.ord) AS commits,
               array_agg(NULL::jsonb) AS details,
               array_agg(CASE WHEN r.status = 'succeeded'
                              THEN jsonb_build_object('output', coalesce(p_outputs[k.n], 'null'))
                              ELSE jsonb_build_object('failure', coalesce(p_outputs[k.n], 'null')) END
                         ORDER BY k.ord) AS bodies
        INTO h
        FROM unnest(v_ended) WITH ORDINALITY AS k(n, ord) JOIN @schema@.agent_runs r ON r.run_id = p_run_ids[k.n];
        PERFORM @schema@.history(t, v_ended_ids, h.tenants, h.tasks, h.statuses, h.befores, h.statuses, h.epochs,
                                 h.revisions, h.owners, h.commits, h.details);
        PERFORM @schema@.emit(t, v_ended_ids, h.tenants, h.tasks, h.types, h.epochs, h.revisions, h.bodies);
    END IF;

    IF v_left IS NOT NULL THEN
        INSERT INTO @schema@.timers (run_id, at)
        SELECT r.run_id, least(r.wait_until, r.deadline)
        FROM unnest(v_parked) AS k(n) JOIN @schema@.agent_runs r ON r.run_id = p_run_ids[k.n]
        WHERE least(r.wait_until, r.deadline) IS NOT NULL
        ORDER BY r.run_id
        ON CONFLICT (run_id) DO UPDATE SET at = excluded.at;
        PERFORM @schema@.wake_runs(array_agg(p_run_ids[k.n]), t) FROM unnest(v_parked) AS k(n);
        INSERT INTO @schema@.ready (run_id, handler, priority, since)
        SELECT r.run_id, r.handler, r.priority, t
        FROM unnest(v_left) AS k(n) JOIN @schema@.agent_runs r ON r.run_id = p_run_ids[k.n]
        WHERE r.status = 'running' AND r.wait_mode IS NULL
        ORDER BY r.run_id
        ON CONFLICT (run_id) DO NOTHING;
    END IF;

    IF v_outcome <> array_fill('ok'::text, ARRAY[v_n]) THEN
        PERFORM @schema@.refuse(t, 'commit', array_agg(p_run_ids[g.n]), array_agg(p_epochs[g.n]),
                                array_agg(v_outcome[g.n]), array_agg(p_owners[g.n]), array_agg(v_epoch[g.n]))
        FROM generate_series(1, v_n) AS g(n) WHERE v_outcome[g.n] <> 'ok' AND v_epoch[g.n] IS NOT NULL;
    END IF;

    IF cardinality(p_i_item) > 0 THEN
        SELECT coalesce(jsonb_object_agg(d.item, d.ids), v_none) INTO v_adopted
        FROM (SELECT u.item, jsonb_agg(o.operation_id ORDER BY u.ord) AS ids
              FROM unnest(p_i_item, p_i_operation_id) WITH ORDINALITY AS u(item, operation_id, ord)
              JOIN @schema@.tool_operations o ON o.operation_id = u.operation_id
              WHERE o.adopted_from IS NOT NULL AND v_outcome[u.item] = 'ok' GROUP BY u.item) d;
    END IF;
    RETURN QUERY
    SELECT g.n, v_outcome[g.n],
           CASE WHEN v_write[g.n] THEN v_revision[g.n] + 1 ELSE v_revision[g.n] END,
           v_epoch[g.n], v_owner[g.n],
           CASE WHEN v_outcome[g.n] = 'revision_conflict'
                THEN (SELECT r.checkpoint FROM @schema@.agent_runs r WHERE r.run_id = p_run_ids[g.n]) END,
           y.run_id IS NOT NULL,
           CASE WHEN y.run_id IS NOT NULL
                THEN (SELECT r.woke_reason FROM @schema@.agent_runs r WHERE r.run_id = p_run_ids[g.n]) END,
           v_detail[g.n],
           CASE WHEN v_adopted ? g.n::text THEN ARRAY(SELECT jsonb_array_elements_text(v_adopted -> g.n::text)) END
    FROM generate_series(1, v_n) AS g(n)
    LEFT JOIN @schema@.ready y ON y.run_id = p_run_ids[g.n] AND v_outcome[g.n] = 'ok';
END $$;
