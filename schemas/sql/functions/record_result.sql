-- record_result(p_operation_ids[], p_owners[], p_revisions[], p_attempts[], p_digests[], p_verdicts[], p_remote_ids[],
--               p_results[], p_evidence[]) → item, outcome, run_id, woke, epoch, status     interface; worker
--
-- A tool's verified answer settles the operation: succeeded, or failed_final (a definitive refusal). It counts only in
-- the name of the claim under which it was sent (owner, revision, attempt as claim_operations answered them) while that
-- claim is the latest one and nobody took the operation for unknown, and only for the request that the ledger holds.
-- Everything else is evidence. Several results of one run are judged together; the wake rule is asked once for it.
--
-- Outcomes: recorded (settled now; asked again with the same content: the same, nothing happens twice),
--   evidence_only   a refusal while another attempt may have been sent: that one may have acted, so the operation becomes
--                   unknown, with this answer as evidence. While a history may have been lost, that one may have
--   late            that claim existed, but the operation went on without it: kept as evidence, settles nothing
--   contradiction   late, and a fact that the settled operation denies: a success of one that failed or was cancelled,
--                   a refusal of the very attempt that succeeded, a second remote identity. Changes nothing; kept,
--                   published once, counted
--   digest_mismatch the answer speaks of another request; kept as evidence
--   missing         no such operation, or (status not NULL) no such claim was ever given out
-- woke: the run became ready by this call (or, asked again, is ready): send the hint. epoch: of the run's lease.
-- Errors: 22023, 25001.
-- Locks: runs, operations (in key order), then ready, timers by wake_runs().
-- Tables: control, agent_runs, worker_leases, tool_operations, operation_evidence, ready, timers, signals,
--         outbox_events, refusals.
CREATE OR REPLACE FUNCTION @iface@.record_result(
    p_operation_ids text[], p_owners text[], p_revisions bigint[], p_attempts integer[], p_digests text[],
    p_verdicts text[], p_remote_ids text[], p_results jsonb[], p_evidence jsonb[])
RETURNS TABLE (item integer, outcome text, run_id uuid, woke boolean, epoch bigint, status text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET lock_timeout = '5s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    t          timestamptz;
    v_outcomes text[];
    v_lost     boolean := false;
    v_doubt    text[];
    v_applied  text[];
    v_types    text[];
    v_told     text[];
    v_facts    jsonb[];
    v_runs     uuid[];
    v_woken    uuid[];
    f          record;
BEGIN
    IF EXISTS (SELECT FROM unnest(p_verdicts) u (verdict)
                WHERE coalesce(u.verdict, '') NOT IN ('succeeded', 'failed_final')) THEN
        RAISE EXCEPTION 'record_result: a verdict is neither succeeded nor failed_final' USING ERRCODE = '22023';
    END IF;
    PERFORM @schema@.record_lock('record_result', p_operation_ids,
        ARRAY[cardinality(p_operation_ids), cardinality(p_owners), cardinality(p_revisions), cardinality(p_attempts),
              cardinality(p_digests), cardinality(p_verdicts), cardinality(p_remote_ids), cardinality(p_results),
              cardinality(p_evidence)], p_results || p_evidence);

    IF 'failed_final' = ANY (p_verdicts) THEN
        v_lost := @schema@.history_in_doubt();
    END IF;
    -- Inside, 'apply' and 'doubt' are written now; 'recorded' and 'evidence_only' are what an earlier call wrote.
    t := clock_timestamp();
    SELECT array_agg(d.outcome ORDER BY d.ord),
           array_agg(d.operation_id ORDER BY d.ord) FILTER (WHERE d.outcome = 'apply'),
           array_agg(CASE d.verdict WHEN 'succeeded' THEN 'operation.succeeded' ELSE 'operation.failed' END
                     ORDER BY d.ord) FILTER (WHERE d.outcome = 'apply'),
           array_agg(DISTINCT d.run_id) FILTER (WHERE d.outcome = 'apply')
      INTO v_outcomes, v_applied, v_types, v_runs
      FROM (SELECT i.ord, o.operation_id, o.run_id, i.verdict, CASE
                   WHEN o.operation_id IS NULL THEN 'missing'
                   WHEN i.digest IS DISTINCT FROM o.request_digest THEN 'digest_mismatch'
                   WHEN o.status = 'dispatching' AND c.latest AND i.verdict = 'failed_final'
                        AND (v_lost OR o.attempts - o.attempts_not_sent > 1) THEN 'doubt'
                   WHEN o.status = 'dispatching' AND c.latest THEN 'apply'
                   WHEN o.status = 'unknown' AND c.latest AND i.verdict = 'failed_final' AND EXISTS (
                        SELECT FROM @schema@.operation_evidence e
                         WHERE e.operation_id = o.operation_id AND e.kind = 'response' AND e.attempt = i.attempt
                           AND e.dispatch_owner = i.owner AND e.dispatch_revision = i.revision) THEN 'evidence_only'
                   WHEN o.status = i.verdict AND c.latest AND o.remote_id IS NOT DISTINCT FROM i.remote_id
                        AND o.result IS NOT DISTINCT FROM i.result THEN 'recorded'
                   WHEN NOT c.latest
                        AND NOT @schema@.claim_existed(o.operation_id, i.owner, i.revision, i.attempt) THEN 'missing'
                   WHEN i.verdict = 'succeeded' AND o.status IN ('failed_final', 'cancelled') THEN 'contradiction'
                   WHEN i.verdict = 'succeeded' AND o.status = 'succeeded' AND o.remote_id <> i.remote_id
                       THEN 'contradiction'
                   WHEN i.verdict = 'failed_final' AND o.status = 'succeeded' AND c.latest THEN 'contradiction'
                   ELSE 'late' END AS outcome
              FROM unnest(p_operation_ids, p_owners, p_revisions, p_attempts, p_digests, p_verdicts, p_remote_ids,
                          p_results) WITH ORDINALITY
                   i (operation_id, owner, revision, attempt, digest, verdict, remote_id, result, ord)
              LEFT JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
             CROSS JOIN LATERAL (SELECT coalesce(o.dispatch_owner = i.owner AND o.claimed_revision = i.revision
                                                 AND o.claimed_attempt = i.attempt, false)) c (latest)) d;

    IF v_applied IS NOT NULL THEN
        UPDATE @schema@.tool_operations o
           SET status = i.verdict, remote_id = i.remote_id, result = i.result, dispatch_until = NULL,
               revision = o.revision + 1, updated_at = t
          FROM unnest(p_operation_ids, p_verdicts, p_remote_ids, p_results, v_outcomes)
               i (operation_id, verdict, remote_id, result, outcome)
         WHERE o.operation_id = i.operation_id AND i.outcome = 'apply';
        PERFORM @schema@.emit_operations(t, v_applied, v_types, NULL);
        v_woken := @schema@.wake_runs(v_runs, t);
    END IF;
    IF 'doubt' = ANY (v_outcomes) THEN
        IF v_lost THEN
            PERFORM @schema@.doubt_operations(t, array_agg(i.id ORDER BY i.id)) FROM unnest(p_operation_ids, v_outcomes) i (id, outcome)
              WHERE i.outcome = 'doubt';
        END IF;
        UPDATE @schema@.tool_operations o
           SET status = 'unknown', revision = o.revision + 1, updated_at = t,
               not_before = @schema@.due_again(o.capability, o.declaration, o.first_sent_at, o.retention_ms, t,
                                               @schema@.back_off_ms(o.attempts))
          FROM unnest(p_operation_ids, v_outcomes) i (operation_id, outcome)
         WHERE o.operation_id = i.operation_id AND i.outcome = 'doubt';
        -- In doubt for the first time: this claim's was the only attempt that this history knows.
        SELECT array_agg(o.operation_id ORDER BY o.operation_id) INTO v_doubt
          FROM unnest(p_operation_ids, v_outcomes) i (operation_id, outcome)
          JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
         WHERE i.outcome = 'doubt' AND o.claimed_attempt - o.attempts_not_sent = 1;
        IF v_doubt IS NOT NULL THEN
            PERFORM @schema@.emit_operations(t, v_doubt, array_fill('operation.unknown'::text, ARRAY[cardinality(v_doubt)]),
                                             array_fill('{"why": "lost_history"}'::jsonb, ARRAY[cardinality(v_doubt)]));
        END IF;
    END IF;
    IF 'contradiction' = ANY (v_outcomes) THEN
        -- Published once: a fact that is delivered again is not another contradiction.
        SELECT array_agg(i.operation_id ORDER BY i.ord),
               array_agg(jsonb_build_object('verdict', i.verdict, 'remote_id', i.remote_id, 'attempt', i.attempt)
                         ORDER BY i.ord)
          INTO v_told, v_facts
          FROM unnest(p_operation_ids, p_attempts, p_verdicts, p_remote_ids, v_outcomes) WITH ORDINALITY
               i (operation_id, attempt, verdict, remote_id, outcome, ord)
         WHERE i.outcome = 'contradiction' AND NOT EXISTS (
               SELECT FROM @schema@.operation_evidence e
                WHERE e.operation_id = i.operation_id AND e.kind = 'contradiction' AND e.attempt = i.attempt
                  AND e.detail ->> 'verdict' = i.verdict);
        IF v_told IS NOT NULL THEN
            PERFORM @schema@.emit_operations(t, v_told, array_fill('operation.contradiction'::text,
                                                                   ARRAY[cardinality(v_told)]), v_facts);
        END IF;
    END IF;

    INSERT INTO @schema@.operation_evidence (at, operation_id, attempt, dispatch_owner, dispatch_revision, epoch, kind,
                                             detail)
    SELECT t, o.operation_id, i.attempt, i.owner, i.revision, l.epoch,
           CASE i.outcome WHEN 'apply' THEN 'response' WHEN 'doubt' THEN 'response' WHEN 'missing' THEN 'unmatched'
                          ELSE i.outcome END,
           jsonb_build_object('verdict', i.verdict, 'evidence', coalesce(i.evidence, '{}'))
           || CASE WHEN i.outcome = 'apply' THEN '{}'
                   ELSE jsonb_build_object('remote_id', i.remote_id, 'result', i.result, 'digest', i.digest) END
      FROM unnest(p_operation_ids, p_owners, p_revisions, p_attempts, p_digests, p_verdicts, p_remote_ids, p_results,
                  p_evidence, v_outcomes) WITH ORDINALITY
           i (operation_id, owner, revision, attempt, digest, verdict, remote_id, result, evidence, outcome, ord)
      JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
      LEFT JOIN @schema@.worker_leases l ON l.run_id = o.run_id
     WHERE i.outcome NOT IN ('recorded', 'evidence_only')
     ORDER BY i.ord;
    PERFORM @schema@.refuse_operations(t, 'record_result', p_operation_ids, p_owners, v_outcomes);

    RETURN QUERY
    SELECT i.ord::integer, CASE i.outcome WHEN 'apply' THEN 'recorded' WHEN 'doubt' THEN 'evidence_only' ELSE i.outcome END,
           o.run_id,
           CASE i.outcome WHEN 'apply' THEN o.run_id = ANY (v_woken)
                WHEN 'recorded' THEN EXISTS (SELECT FROM @schema@.ready y WHERE y.run_id = o.run_id)
                ELSE false END,
           l.epoch, o.status
      FROM unnest(p_operation_ids, v_outcomes) WITH ORDINALITY i (operation_id, outcome, ord)
      LEFT JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
      LEFT JOIN @schema@.worker_leases l ON l.run_id = o.run_id
     ORDER BY i.ord;
END
$$;
