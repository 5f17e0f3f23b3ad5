-- resolve(p_operation_ids[], p_revisions[], p_verdict[], p_who[], p_why[], p_remote_ids[], p_results[], p_evidence[])
--                                     → item, outcome, run_id, woke, epoch, status, revision          interface; operator
-- A person's decision about an operation in doubt, with the evidence it rests on. It counts only for the state that the
-- person looked at (p_revisions); queries of it meanwhile do not change that.
--
-- Outcomes: resolved (asked again by the same person: the same); stale (it went on since); not_allowed (it was not sent, or
--           is being sent: nothing is in doubt); missing; contradiction (the settled operation denies it: kept, published
--           once, nothing changes).
-- woke: the run became ready: send the hint. A fact that arrives later and denies it is a contradiction, too.
-- Errors: 22023, also without who, why or a verdict (succeeded, failed_final); 25001.
-- Locks: runs, operations (in key order), then ready, timers by wake_runs().
-- Tables: control, agent_runs, worker_leases, tool_operations, operation_evidence, ready, timers, signals, outbox_events.
CREATE OR REPLACE FUNCTION @iface@.resolve(
    p_operation_ids text[], p_revisions bigint[], p_verdict text[], p_who text[], p_why text[], p_remote_ids text[],
    p_results jsonb[], p_evidence jsonb[])
RETURNS TABLE (item integer, outcome text, run_id uuid, woke boolean, epoch bigint, status text, revision bigint)
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
    v_outcomes text[];
    v_woken    uuid[];
    t          timestamptz;
BEGIN
    IF EXISTS (SELECT FROM unnest(p_verdict) u (verdict) WHERE coalesce(u.verdict, '') NOT IN ('succeeded', 'failed_final')) THEN
        RAISE EXCEPTION 'resolve: a verdict is neither succeeded nor failed_final' USING ERRCODE = '22023';
    END IF;
    PERFORM @schema@.check_people('resolve', p_who, p_why);
    PERFORM @schema@.record_lock('resolve', p_operation_ids,
        ARRAY[cardinality(p_operation_ids), cardinality(p_revisions), cardinality(p_verdict), cardinality(p_who),
              cardinality(p_why), cardinality(p_remote_ids), cardinality(p_results), cardinality(p_evidence)],
        p_results || p_evidence);

    t := clock_timestamp();
    SELECT array_agg(CASE
               WHEN o.operation_id IS NULL THEN 'missing'
               WHEN o.status = i.verdict AND o.revision = i.revision + 1
                    AND @schema@.was_manual(o.operation_id, 'resolve', i.revision, i.who) THEN 'resolved'
               WHEN (i.verdict = 'succeeded' AND o.status IN ('failed_final', 'cancelled'))
                    OR (i.verdict = 'failed_final' AND o.status = 'succeeded') THEN 'contradiction'
               WHEN o.revision IS DISTINCT FROM i.revision OR o.status IN ('succeeded', 'failed_final', 'cancelled') THEN 'stale'
               WHEN o.status <> 'unknown' OR o.attempts = o.attempts_not_sent THEN 'not_allowed'
               ELSE 'apply' END ORDER BY i.ord)
      INTO v_outcomes
      FROM unnest(p_operation_ids, p_revisions, p_verdict, p_who) WITH ORDINALITY AS i(operation_id, revision, verdict, who, ord)
      LEFT JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id;

    PERFORM @schema@.publish_contradictions(t, array_agg(i.operation_id ORDER BY i.ord),
                array_agg(NULL::integer), array_agg(i.verdict ORDER BY i.ord), array_agg(i.remote_id ORDER BY i.ord))
       FROM unnest(p_operation_ids, p_verdict, p_remote_ids, v_outcomes) WITH ORDINALITY
            AS i(operation_id, verdict, remote_id, outcome, ord)
      WHERE i.outcome = 'contradiction';
    INSERT INTO @schema@.operation_evidence (at, operation_id, epoch, kind, detail)
    SELECT t, o.operation_id, l.epoch, CASE i.outcome WHEN 'apply' THEN 'manual' ELSE i.outcome END,
           jsonb_build_object('verb', 'resolve', 'who', i.who, 'why', i.why, 'login', session_user, 'verdict', i.verdict,
                              'expected_revision', i.revision, 'status', o.status, 'remote_id', i.remote_id,
                              'result', i.result, 'evidence', coalesce(i.evidence, '{}'))
      FROM unnest(p_operation_ids, p_revisions, p_verdict, p_who, p_why, p_remote_ids, p_results, p_evidence, v_outcomes)
           WITH ORDINALITY AS i(operation_id, revision, verdict, who, why, remote_id, result, evidence, outcome, ord)
      JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
      LEFT JOIN @schema@.worker_leases l ON l.run_id = o.run_id
     WHERE i.outcome IN ('apply', 'contradiction')
     ORDER BY i.ord;
    v_woken := (SELECT @schema@.settle_operations(t, array_agg(i.operation_id ORDER BY i.ord),
                    array_agg(i.verdict ORDER BY i.ord), array_agg(i.remote_id ORDER BY i.ord),
                    array_agg(i.result ORDER BY i.ord),
                    array_agg(jsonb_build_object('resolved_by', i.who, 'why', i.why) ORDER BY i.ord))
                  FROM unnest(p_operation_ids, p_verdict, p_remote_ids, p_results, p_who, p_why, v_outcomes) WITH ORDINALITY
                       AS i(operation_id, verdict, remote_id, result, who, why, outcome, ord)
                 WHERE i.outcome = 'apply');

    RETURN QUERY
    SELECT i.ord::integer, CASE i.outcome WHEN 'apply' THEN 'resolved' ELSE i.outcome END, o.run_id,
           CASE i.outcome WHEN 'apply' THEN o.run_id = ANY (v_woken)
                WHEN 'resolved' THEN EXISTS (SELECT FROM @schema@.ready y WHERE y.run_id = o.run_id)
                ELSE false END,
           l.epoch, o.status, o.revision
      FROM unnest(p_operation_ids, v_outcomes) WITH ORDINALITY AS i(operation_id, outcome, ord)
      LEFT JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
      LEFT JOIN @schema@.worker_leases l ON l.run_id = o.run_id
     ORDER BY i.ord;
END
$$;

-- check_people(p_verb, p_who[], p_why[]): a person's act is kept with who and why, or it is refused (22023).
CREATE OR REPLACE FUNCTION @schema@.check_people(p_verb text, p_who text[], p_why text[]) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF EXISTS (SELECT FROM unnest(p_who, p_why) AS u(who, why)
                WHERE btrim(coalesce(u.who, '')) = '' OR btrim(coalesce(u.why, '')) = '') THEN
        RAISE EXCEPTION '%: who and why must be given', p_verb USING ERRCODE = '22023';
    END IF;
END
$$;

-- was_manual(…) → boolean: whether this person's act on that revision is in the ledger: the call is asked again.
CREATE OR REPLACE FUNCTION @schema@.was_manual(p_operation_id text, p_verb text, p_revision bigint, p_who text) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM @schema@.operation_evidence e
                    WHERE e.operation_id = p_operation_id AND e.kind = 'manual' AND e.detail ->> 'verb' = p_verb
                      AND e.detail -> 'expected_revision' = to_jsonb(p_revision) AND e.detail ->> 'who' = p_who);
END
$$;
