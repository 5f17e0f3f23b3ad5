-- What the audit of a failover compares and keeps (protocol section 10): PostgreSQL with what Kafka remembers.

-- audit_runs(p_run_ids[], p_epochs[], p_revisions[], p_statuses[]) → item, verdict, epoch, revision, status
--                                                                            interface; operator, viewer
-- One item a run: the highest epoch and revision that the result topic has of it, and how it ended there (NULL: it did not).
-- Verdicts: same; ahead (this database knows more: what is not published yet)
--           lost      this database has never heard of the run
--           behind    it knows a lower epoch or revision: what was acknowledged above that is lost
--           reopened  it ended there, and has not ended here
--           forked    it ended otherwise here
-- Errors: 22023, 25001. Locks: none. Tables: agent_runs, worker_leases.
CREATE OR REPLACE FUNCTION @iface@.audit_runs(p_run_ids uuid[], p_epochs bigint[], p_revisions bigint[], p_statuses text[])
RETURNS TABLE (item integer, verdict text, epoch bigint, revision bigint, status text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    PERFORM @schema@.batch_check('audit_runs', ARRAY[cardinality(p_run_ids), cardinality(p_epochs), cardinality(p_revisions),
                                                     cardinality(p_statuses)]);
    RETURN QUERY
    SELECT i.ord::integer, CASE
               WHEN r.run_id IS NULL THEN 'lost'
               WHEN i.status IS NOT NULL AND r.status IN ('pending', 'running') THEN 'reopened'
               WHEN i.status <> r.status THEN 'forked'
               WHEN l.epoch < i.epoch OR r.revision < i.revision THEN 'behind'
               WHEN l.epoch > i.epoch OR r.revision > i.revision THEN 'ahead'
               ELSE 'same' END, l.epoch, r.revision, r.status
      FROM unnest(p_run_ids, p_epochs, p_revisions, p_statuses) WITH ORDINALITY AS i(run_id, epoch, revision, status, ord)
      LEFT JOIN @schema@.agent_runs r ON r.run_id = i.run_id
      LEFT JOIN @schema@.worker_leases l ON l.run_id = i.run_id
     ORDER BY i.ord;
END
$$;

-- audit_operations(p_operation_ids[], p_attempts[], p_statuses[]) → item, verdict, status, attempts     interface; operator, viewer
-- One item an operation: the highest attempt that Kafka holds a claim of (0: none), and how it was settled there (NULL).
-- Verdicts: same
--           orphan    this ledger does not know it, and it may have been sent, or was: audit_adopt()
--           lost      a claim of it, or its settlement, is lost: opening the gate doubts it
--           forked    it was settled otherwise here
-- Errors: 22023, 25001. Locks: none. Tables: tool_operations.
CREATE OR REPLACE FUNCTION @iface@.audit_operations(p_operation_ids text[], p_attempts integer[], p_statuses text[])
RETURNS TABLE (item integer, verdict text, status text, attempts integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    PERFORM @schema@.batch_check('audit_operations', ARRAY[cardinality(p_operation_ids), cardinality(p_attempts),
                                                           cardinality(p_statuses)]);
    RETURN QUERY
    SELECT i.ord::integer, CASE
               WHEN o.operation_id IS NULL THEN CASE WHEN i.attempt > 0 OR i.status IN ('succeeded', 'unknown') THEN 'orphan' ELSE 'lost' END
               WHEN i.status IN ('succeeded', 'failed_final', 'cancelled') AND o.status <> i.status
                    THEN CASE WHEN o.status IN ('succeeded', 'failed_final', 'cancelled') THEN 'forked' ELSE 'lost' END
               WHEN o.attempts < i.attempt THEN 'lost'
               ELSE 'same' END, o.status, o.attempts
      FROM unnest(p_operation_ids, p_attempts, p_statuses) WITH ORDINALITY AS i(operation_id, attempt, status, ord)
      LEFT JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
     ORDER BY i.ord;
END
$$;

-- audit_adopt(p_operation_ids[], p_tools[], p_digests[], p_attempts[], p_by, p_reason) → item, outcome, run_id
--                                                                            interface; operator
-- Puts orphan effects into the ledger: operations that Kafka holds a claim or a result of and this database never
-- registered. They are unknown, by that many attempts, with evidence lost_history; nobody may send them (capability none).
-- When their run registers the same effect again, it meets them; and their run is not resumed before they are settled: it is
-- parked on them, and its lease, if somebody holds one, is taken back with its epoch kept. Of an ended run they are detached.
--   p_tools, p_digests   as the intent or the event said; a run that plans the effect otherwise now is an intent_conflict
--
-- Outcomes: adopted; exists (it is known by now: asked again, the same); no_run (nor its run: nothing here can be resumed;
--           it is for a person to look at); invalid (not of the form tenant/run/step/version).
-- Errors: 22023, also without who or why; 25001.
-- Locks: gate (exclusive), leases, runs, operations; ready, timers.
-- Tables: control, agent_runs, worker_leases, tool_operations, operation_evidence, ready, timers, outbox_events.
CREATE OR REPLACE FUNCTION @iface@.audit_adopt(p_operation_ids text[], p_tools text[], p_digests text[], p_attempts integer[],
                                               p_by text, p_reason text)
RETURNS TABLE (item integer, outcome text, run_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET lock_timeout = '20s'
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_form     constant text := '^([^/]+)/([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})/(.+)/([1-9][0-9]{0,8})$';
    v_runs     uuid[];
    v_outcomes text[];
    v_new      text[];
    v_parked   uuid[];
    t          timestamptz;
BEGIN
    PERFORM @schema@.record_check('audit_adopt', p_operation_ids, ARRAY[cardinality(p_operation_ids), cardinality(p_tools),
                                  cardinality(p_digests), cardinality(p_attempts)], '{}');
    IF btrim(coalesce(p_by, '')) = '' OR btrim(coalesce(p_reason, '')) = '' THEN
        RAISE EXCEPTION 'audit_adopt: who and why must be given' USING ERRCODE = '22023';
    END IF;
    PERFORM pg_advisory_xact_lock(@schema@.gate_key());
    SELECT array_agg((m.part)[2]::uuid ORDER BY i.ord) INTO v_runs
      FROM unnest(p_operation_ids) WITH ORDINALITY AS i(id, ord)
      LEFT JOIN LATERAL (SELECT regexp_match(i.id, v_form) AS part) m ON true;
    PERFORM FROM @schema@.worker_leases l WHERE l.run_id = ANY (v_runs) ORDER BY l.run_id FOR NO KEY UPDATE;
    PERFORM FROM @schema@.agent_runs r WHERE r.run_id = ANY (v_runs) ORDER BY r.run_id FOR NO KEY UPDATE;
    t := clock_timestamp();

    SELECT array_agg(CASE WHEN i.run_id IS NULL OR length(i.id) > 200 OR coalesce(i.attempt, 0) < 1 THEN 'invalid'
                          WHEN o.operation_id IS NOT NULL THEN 'exists'
                          WHEN r.run_id IS NULL OR r.tenant_id <> split_part(i.id, '/', 1) THEN 'no_run'
                          ELSE 'adopted' END ORDER BY i.ord)
      INTO v_outcomes
      FROM unnest(p_operation_ids, p_attempts, v_runs) WITH ORDINALITY AS i(id, attempt, run_id, ord)
      LEFT JOIN @schema@.tool_operations o ON o.operation_id = i.id
      LEFT JOIN @schema@.agent_runs r ON r.run_id = i.run_id;

    INSERT INTO @schema@.tool_operations (operation_id, run_id, step_id, effect_version, tool_name, request_digest,
        request_body, status, attempts, capability, external_key, detached, first_sent_at, created_at, updated_at)
    SELECT i.id, i.run_id, m.part[3], m.part[4]::integer, coalesce(i.tool, ''), coalesce(i.digest, ''), '{}', 'unknown',
           i.attempt, 'none', i.id, r.status NOT IN ('pending', 'running'), t, t, t
      FROM unnest(p_operation_ids, p_tools, p_digests, p_attempts, v_runs, v_outcomes) AS i(id, tool, digest, attempt, run_id, outcome)
      JOIN @schema@.agent_runs r ON r.run_id = i.run_id
     CROSS JOIN LATERAL (SELECT regexp_match(i.id, v_form) AS part) m
     WHERE i.outcome = 'adopted' ORDER BY i.id;
    INSERT INTO @schema@.operation_evidence (at, operation_id, attempt, epoch, kind, detail)
    SELECT t, i.id, i.attempt, l.epoch, 'lost_history',
           jsonb_build_object('verb', 'audit_adopt', 'by', p_by, 'why', p_reason, 'login', session_user)
      FROM unnest(p_operation_ids, p_attempts, v_runs, v_outcomes) AS i(id, attempt, run_id, outcome)
      LEFT JOIN @schema@.worker_leases l ON l.run_id = i.run_id
     WHERE i.outcome = 'adopted' ORDER BY i.id;

    -- Parked on them, in place of whatever the run waited for: once they are settled it goes on from its checkpoint, as
    -- after any takeover. A deadline stays.
    SELECT array_agg(DISTINCT r.run_id) INTO v_parked
      FROM unnest(v_runs, v_outcomes) AS i(run_id, outcome) JOIN @schema@.agent_runs r ON r.run_id = i.run_id
     WHERE i.outcome = 'adopted' AND r.status IN ('pending', 'running');
    UPDATE @schema@.worker_leases l SET owner = NULL, expires_at = t, updated_at = t
     WHERE l.run_id = ANY (v_parked) AND l.owner IS NOT NULL;
    UPDATE @schema@.agent_runs r
       SET wait_mode = 'all', wait_signal = NULL, wait_until = NULL, woke_reason = NULL, updated_at = t,
           wait_operations = ARRAY(SELECT o.operation_id FROM @schema@.tool_operations o
                                    WHERE o.run_id = r.run_id AND o.status = 'unknown'
                                      AND EXISTS (SELECT FROM @schema@.operation_evidence e
                                                   WHERE e.operation_id = o.operation_id AND e.kind = 'lost_history'
                                                     AND e.detail ->> 'verb' = 'audit_adopt')
                                    ORDER BY o.operation_id)
     WHERE r.run_id = ANY (v_parked);
    DELETE FROM @schema@.ready y WHERE y.run_id = ANY (v_parked);
    DELETE FROM @schema@.timers m WHERE m.run_id = ANY (v_parked);
    INSERT INTO @schema@.timers (run_id, at)
    SELECT r.run_id, r.deadline FROM @schema@.agent_runs r
     WHERE r.run_id = ANY (v_parked) AND r.deadline IS NOT NULL ORDER BY r.run_id;

    SELECT array_agg(i.id ORDER BY i.ord) INTO v_new
      FROM unnest(p_operation_ids, v_outcomes) WITH ORDINALITY AS i(id, outcome, ord) WHERE i.outcome = 'adopted';
    IF v_new IS NOT NULL THEN
        PERFORM @schema@.emit_operations(t, v_new, array_fill('operation.unknown'::text, ARRAY[cardinality(v_new)]),
                                         array_fill('{"why": "lost_history"}'::jsonb, ARRAY[cardinality(v_new)]));
    END IF;
    RETURN QUERY SELECT i.ord::integer, i.outcome, i.run_id
                   FROM unnest(v_outcomes, v_runs) WITH ORDINALITY AS i(outcome, run_id, ord) ORDER BY i.ord;
END
$$;
