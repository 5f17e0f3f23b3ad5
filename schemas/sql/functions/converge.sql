-- converge(p_operation_ids[], p_attempts[], p_owners[], p_digests[], p_verdicts[], p_remote_ids[], p_results[], p_evidence[],
--          p_by[]) → item, outcome, run_id, woke, epoch, status                               interface; worker, operator
--
-- A fact that the remote tells outside the dispatch that asked for it: a late answer, an answer to a query, a callback.
--
--   p_attempts, p_owners   the dispatch claim that the fact belongs to (owner NULL: the remote does not say whose). Attempt
--                 NULL: the operation as such; the owner then is the session that holds its query (claim_queries), or
--                 NULL for one who was not asked
--   p_digests     of the request that the fact speaks of
--   p_verdicts    succeeded (verified), failed_final (a definitive refusal), absent (the remote does not know it)
--   p_by          who brings it, kept with the evidence
--
-- What settles an operation that is dispatching or unknown:
--   succeeded     of any attempt that existed, or of the operation
--   failed_final  only if no other attempt may have been sent: that one may have acted; while a history may have been lost,
--                 never
--   absent        only from the holder of a query that was made after absent_final_at (see claim_queries: declared by the
--                 tool, and nothing of ours can still be on its way). Then no attempt was executed: the operation is unsent,
--                 with all its attempts, and claimable anew; of a terminal run that it is not detached from it is cancelled
-- Everything else is evidence. A query held by p_owners is over in any case.
--
-- Outcomes: settled (asked again with the same content: the same, nothing happens twice), evidence_only,
--   contradiction    a fact that the settled operation denies: a success of one that failed or was cancelled, a second
--                    remote identity, a refusal or the absence of what succeeded. Changes nothing; kept, published once
--   digest_mismatch  it speaks of another request; kept
--   missing          no such operation, or (status not NULL) no such claim was ever given out; kept as unmatched
-- woke, epoch: as in record_result.
-- Errors: 22023, 25001.
-- Locks: gate (shared, only for absent), runs, operations (in key order), then ready, timers by wake_runs().
-- Tables: control, agent_runs, worker_leases, tool_operations, operation_evidence, ready, timers, signals,
--         outbox_events, refusals.
CREATE OR REPLACE FUNCTION @iface@.converge(
    p_operation_ids text[], p_attempts integer[], p_owners text[], p_digests text[], p_verdicts text[], p_remote_ids text[],
    p_results jsonb[], p_evidence jsonb[], p_by text[])
RETURNS TABLE (item integer, outcome text, run_id uuid, woke boolean, epoch bigint, status text)
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
    v_open     boolean := false; -- absence is a fact only of the history that the gate has let through
    v_lost     boolean := false;
    v_outcomes text[];
    v_unsent   text[];
    v_asked    text[];
    v_woken    uuid[];
    t          timestamptz;
BEGIN
    IF EXISTS (SELECT FROM unnest(p_verdicts) u (verdict)
                WHERE coalesce(u.verdict, '') NOT IN ('succeeded', 'failed_final', 'absent')) THEN
        RAISE EXCEPTION 'converge: a verdict is neither succeeded, failed_final nor absent' USING ERRCODE = '22023';
    END IF;
    IF 'absent' = ANY (p_verdicts) THEN
        v_open := @schema@.gate_open();
    END IF;
    PERFORM @schema@.record_lock('converge', p_operation_ids,
        ARRAY[cardinality(p_operation_ids), cardinality(p_attempts), cardinality(p_owners), cardinality(p_digests),
              cardinality(p_verdicts), cardinality(p_remote_ids), cardinality(p_results), cardinality(p_evidence),
              cardinality(p_by)], p_results || p_evidence);

    IF 'failed_final' = ANY (p_verdicts) THEN
        v_lost := @schema@.history_in_doubt();
    END IF;
    -- Inside, 'apply' and 'unsent' are written now; 'settled' is what an earlier call wrote.
    t := clock_timestamp();
    SELECT array_agg(d.outcome ORDER BY d.ord),
           array_agg(d.operation_id) FILTER (WHERE d.outcome = 'unsent'),
           array_agg(d.operation_id) FILTER (WHERE d.asked AND d.outcome NOT IN ('apply', 'unsent'))
      INTO v_outcomes, v_unsent, v_asked
      FROM (SELECT i.ord, o.operation_id, q.asked, CASE
                   WHEN o.operation_id IS NULL THEN 'missing'
                   WHEN i.digest IS DISTINCT FROM o.request_digest THEN 'digest_mismatch'
                   WHEN i.attempt IS NOT NULL AND NOT c.existed THEN 'missing'
                   WHEN o.status IN ('dispatching', 'unknown') AND o.attempts > 0 THEN CASE
                        WHEN i.verdict = 'succeeded' THEN 'apply'
                        WHEN i.verdict = 'failed_final' AND n.others = 0 AND NOT v_lost THEN 'apply'
                        WHEN i.verdict = 'absent' AND n.final AND o.status = 'unknown' AND o.attempts > o.attempts_not_sent
                            THEN 'unsent'
                        ELSE 'evidence_only' END
                   WHEN o.status = i.verdict AND o.result IS NOT DISTINCT FROM i.result
                        AND coalesce(o.remote_id = i.remote_id, i.remote_id IS NULL) THEN 'settled'
                   WHEN i.verdict = 'succeeded' AND o.status IN ('failed_final', 'cancelled') THEN 'contradiction'
                   WHEN i.verdict = 'succeeded' AND o.status = 'succeeded' AND o.remote_id <> i.remote_id
                       THEN 'contradiction'
                   WHEN i.verdict = 'failed_final' AND o.status = 'succeeded' AND (i.attempt IS NULL OR EXISTS (
                        SELECT FROM @schema@.operation_evidence e
                         WHERE e.operation_id = o.operation_id AND e.kind IN ('response', 'converged')
                           AND e.attempt = i.attempt AND e.detail ->> 'verdict' = 'succeeded')) THEN 'contradiction'
                   WHEN i.verdict = 'absent' AND o.status = 'succeeded' AND n.declared THEN 'contradiction'
                   ELSE 'evidence_only' END AS outcome
              FROM unnest(p_operation_ids, p_attempts, p_owners, p_digests, p_verdicts, p_remote_ids, p_results)
                   WITH ORDINALITY AS i(operation_id, attempt, owner, digest, verdict, remote_id, result, ord)
              LEFT JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
             CROSS JOIN @schema@.control k
             CROSS JOIN LATERAL (SELECT coalesce(i.attempt IS NULL AND o.query_owner = i.owner, false)) AS q(asked)
             CROSS JOIN LATERAL (SELECT i.attempt IS NOT NULL AND EXISTS (
                        SELECT FROM @schema@.operation_evidence e
                         WHERE e.operation_id = i.operation_id AND e.attempt = i.attempt
                           AND ((e.kind = 'claimed' AND (i.owner IS NULL OR e.dispatch_owner = i.owner))
                                OR e.kind = 'lost_history')) OFFSET 0) AS c(existed)
             CROSS JOIN LATERAL (SELECT
                        -- Attempts that may have been sent beside the one that this fact is about. One that was said not to
                        -- have been sent counts for nothing; a fact about the operation as such is about the only one there
                        -- may be, unless another is just being sent.
                        CASE WHEN i.attempt IS NOT NULL
                             THEN o.attempts - o.attempts_not_sent - (NOT EXISTS (
                                  SELECT FROM @schema@.operation_evidence e
                                   WHERE e.operation_id = i.operation_id AND ((e.kind = 'not_sent' AND e.attempt = i.attempt)
                                         OR (e.kind = 'absent' AND e.attempt >= i.attempt))))::integer
                             WHEN o.status = 'dispatching' AND o.attempts > 1 THEN 1
                             ELSE greatest(o.attempts - o.attempts_not_sent - 1, 0) END,
                        v_open AND q.asked AND coalesce(o.query_since >= a.final_at, false),
                        a.final_at IS NOT NULL
                   FROM (SELECT @schema@.absent_final_at(o.capability, o.declaration, coalesce(o.dispatch_until, '-infinity'),
                                                         k.gate_changed_at) OFFSET 0) AS a(final_at)
                 OFFSET 0) AS n(others, final, declared)) d;

    -- Write.
    PERFORM @schema@.publish_contradictions(t, array_agg(i.operation_id ORDER BY i.ord), array_agg(i.attempt ORDER BY i.ord),
                array_agg(i.verdict ORDER BY i.ord), array_agg(i.remote_id ORDER BY i.ord))
       FROM unnest(p_operation_ids, p_attempts, p_verdicts, p_remote_ids, v_outcomes) WITH ORDINALITY
            AS i(operation_id, attempt, verdict, remote_id, outcome, ord)
      WHERE i.outcome = 'contradiction';
    INSERT INTO @schema@.operation_evidence (at, operation_id, attempt, dispatch_owner, epoch, kind, detail)
    SELECT t, o.operation_id, CASE WHEN i.outcome = 'unsent' THEN o.attempts ELSE i.attempt END, i.owner, l.epoch,
           CASE i.outcome WHEN 'apply' THEN 'converged' WHEN 'unsent' THEN 'absent' WHEN 'missing' THEN 'unmatched'
                          WHEN 'evidence_only' THEN 'fact' ELSE i.outcome END,
           jsonb_build_object('verb', 'converge', 'verdict', i.verdict, 'status', o.status, 'by', i.by,
                              'remote_id', i.remote_id, 'evidence', coalesce(i.evidence, '{}'))
           || CASE WHEN i.outcome = 'apply' THEN '{}' ELSE jsonb_build_object('result', i.result) END
           || CASE WHEN i.outcome = 'digest_mismatch' THEN jsonb_build_object('digest', i.digest) ELSE '{}' END
           || CASE WHEN i.attempt IS NULL AND o.query_owner = i.owner
                   THEN jsonb_build_object('query', o.queries, 'since', o.query_since) ELSE '{}' END
      FROM unnest(p_operation_ids, p_attempts, p_owners, p_digests, p_verdicts, p_remote_ids, p_results, p_evidence, p_by,
                  v_outcomes) WITH ORDINALITY
           AS i(operation_id, attempt, owner, digest, verdict, remote_id, result, evidence, by, outcome, ord)
      JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
      LEFT JOIN @schema@.worker_leases l ON l.run_id = o.run_id
     WHERE i.outcome <> 'settled'
     ORDER BY i.ord;
    v_woken := (SELECT @schema@.settle_operations(t, array_agg(i.operation_id ORDER BY i.ord),
                    array_agg(i.verdict ORDER BY i.ord), array_agg(i.remote_id ORDER BY i.ord),
                    array_agg(i.result ORDER BY i.ord), array_agg(NULL::jsonb))
                  FROM unnest(p_operation_ids, p_verdicts, p_remote_ids, p_results, v_outcomes) WITH ORDINALITY
                       AS i(operation_id, verdict, remote_id, result, outcome, ord)
                 WHERE i.outcome = 'apply');
    PERFORM @schema@.was_not_executed(t, v_unsent);
    PERFORM @schema@.query_over(t, v_asked, NULL);
    PERFORM @schema@.refuse_operations(t, 'converge', p_operation_ids, p_owners, v_outcomes);

    RETURN QUERY
    SELECT i.ord::integer, CASE WHEN i.outcome IN ('apply', 'unsent') THEN 'settled' ELSE i.outcome END, o.run_id,
           CASE i.outcome WHEN 'apply' THEN o.run_id = ANY (v_woken)
                WHEN 'settled' THEN EXISTS (SELECT FROM @schema@.ready y WHERE y.run_id = o.run_id)
                ELSE false END,
           l.epoch, o.status
      FROM unnest(p_operation_ids, v_outcomes) WITH ORDINALITY AS i(operation_id, outcome, ord)
      LEFT JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
      LEFT JOIN @schema@.worker_leases l ON l.run_id = o.run_id
     ORDER BY i.ord;
END
$$;

-- was_not_executed(t, p_operation_ids[]): the remote's final word that it knows none of their attempts: they are unsent, or,
-- where nobody will send them any more, cancelled. The caller holds the locks of their runs and of the operations.
CREATE OR REPLACE FUNCTION @schema@.was_not_executed(t timestamptz, p_operation_ids text[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_gone text[];
BEGIN
    IF p_operation_ids IS NULL THEN
        RETURN;
    END IF;
    WITH written AS (
        UPDATE @schema@.tool_operations o
           SET status = CASE WHEN r.status NOT IN ('pending', 'running') AND NOT o.detached
                             THEN 'cancelled' ELSE 'unknown' END,
               attempts_not_sent = o.attempts, first_sent_at = NULL, escalate_at = NULL, not_before = t,
               query_owner = NULL, query_since = NULL, query_until = NULL, queried_attempt = o.attempts,
               revision = o.revision + 1, updated_at = t
          FROM @schema@.agent_runs r
         WHERE o.operation_id = ANY (p_operation_ids) AND r.run_id = o.run_id
        RETURNING o.operation_id, o.status)
    SELECT array_agg(w.operation_id ORDER BY w.operation_id) FILTER (WHERE w.status = 'cancelled') INTO v_gone FROM written w;
    IF v_gone IS NOT NULL THEN
        PERFORM @schema@.emit_operations(t, v_gone, array_fill('operation.cancelled'::text, ARRAY[cardinality(v_gone)]),
                                         array_fill(NULL::jsonb, ARRAY[cardinality(v_gone)]));
    END IF;
END $$;
