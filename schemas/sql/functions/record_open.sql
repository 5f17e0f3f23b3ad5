-- record_open(p_verb, …) → item, outcome, run_id, woke, epoch, status        internal, @schema@
--
-- What record_not_sent and record_unknown have in common: a claim that ends without an answer that settles its
-- operation. Never back to `prepared`. See those two for what they promise.
-- Locks: runs, operations (in key order).
-- Tables: control, agent_runs, worker_leases, tool_operations, operation_evidence, outbox_events, refusals.
CREATE OR REPLACE FUNCTION @schema@.record_open(
    p_verb text, p_operation_ids text[], p_owners text[], p_revisions bigint[], p_attempts integer[],
    p_retry_ms bigint[], p_evidence jsonb[])
RETURNS TABLE (item integer, outcome text, run_id uuid, woke boolean, epoch bigint, status text)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_not_sent constant boolean := p_verb = 'record_not_sent';
    v_kind     constant text := CASE WHEN v_not_sent THEN 'not_sent' ELSE 'unknown' END;
    t          timestamptz;
    v_outcomes text[];
    v_lost     boolean := false; -- a lost history may have sent what this one says was not
    v_told     text[];
    v_types    text[];
    v_whys     jsonb[];
BEGIN
    PERFORM @schema@.record_lock(p_verb, p_operation_ids,
        ARRAY[cardinality(p_operation_ids), cardinality(p_owners), cardinality(p_revisions), cardinality(p_attempts),
              cardinality(p_retry_ms), cardinality(p_evidence)], p_evidence);

    t := clock_timestamp();
    -- A claim that ran out may still say that it never sent: it is the only one who can know, and it is its last word. One
    -- that has said anything else about its attempt has sent; whatever it says after that is evidence.
    SELECT array_agg(d.outcome ORDER BY d.ord) INTO v_outcomes
      FROM (SELECT i.ord, CASE
                   WHEN o.operation_id IS NULL THEN 'missing'
                   WHEN c.latest AND o.status = 'dispatching' AND NOT s.sent THEN 'apply'
                   WHEN c.latest AND e.told THEN 'recorded'
                   WHEN c.latest AND o.status = 'unknown' AND v_not_sent AND NOT s.sent
                        AND o.attempts > o.attempts_not_sent THEN 'apply'
                   WHEN NOT c.latest
                        AND NOT @schema@.claim_existed(o.operation_id, i.owner, i.revision, i.attempt) THEN 'missing'
                   ELSE 'late' END AS outcome
              FROM unnest(p_operation_ids, p_owners, p_revisions, p_attempts) WITH ORDINALITY
                   i (operation_id, owner, revision, attempt, ord)
              LEFT JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
             CROSS JOIN LATERAL (SELECT coalesce(o.dispatch_owner = i.owner AND o.claimed_revision = i.revision
                                                 AND o.claimed_attempt = i.attempt, false)) c (latest)
             CROSS JOIN LATERAL (SELECT o.status <> 'dispatching' AND c.latest AND EXISTS (
                        SELECT FROM @schema@.operation_evidence e
                         WHERE e.operation_id = i.operation_id AND e.kind = v_kind AND e.attempt = i.attempt
                           AND e.dispatch_owner = i.owner AND e.dispatch_revision = i.revision)) e (told)
             CROSS JOIN LATERAL (SELECT v_not_sent AND c.latest AND EXISTS (
                        SELECT FROM @schema@.operation_evidence e
                         WHERE e.operation_id = i.operation_id AND e.attempt = i.attempt
                           AND ((e.kind IN ('response', 'unknown', 'late', 'digest_mismatch', 'contradiction')
                                 AND e.dispatch_owner = i.owner AND e.dispatch_revision = i.revision)
                                OR (e.kind = 'fact' AND e.detail ->> 'verdict' <> 'absent')))) s (sent)) d;

    IF v_not_sent AND 'apply' = ANY (v_outcomes) THEN
        v_lost := @schema@.history_in_doubt();
    END IF;
    IF v_lost THEN
        PERFORM @schema@.doubt_operations(t, array_agg(i.id ORDER BY i.id)) FROM unnest(p_operation_ids, v_outcomes) i (id, outcome)
          WHERE i.outcome = 'apply';
    END IF;
    WITH written AS (
        UPDATE @schema@.tool_operations o
           SET status = CASE WHEN n.unsent AND r.status NOT IN ('pending', 'running') AND NOT o.detached
                             THEN 'cancelled' ELSE 'unknown' END,
               attempts_not_sent = o.attempts_not_sent + v_not_sent::integer,
               first_sent_at = CASE WHEN n.unsent THEN NULL ELSE o.first_sent_at END,
               not_before = CASE WHEN n.unsent THEN t + n.retry_ms * interval '1 millisecond'
                                 ELSE @schema@.due_again(o.capability, o.declaration, o.first_sent_at, o.retention_ms, t,
                                                         n.retry_ms) END,
               revision = o.revision + 1, updated_at = t
          FROM unnest(p_operation_ids, p_retry_ms, v_outcomes) WITH ORDINALITY i (operation_id, retry_ms, outcome, ord)
          JOIN @schema@.tool_operations b ON b.operation_id = i.operation_id
          JOIN @schema@.agent_runs r ON r.run_id = b.run_id
         CROSS JOIN LATERAL (SELECT v_not_sent AND b.attempts = b.attempts_not_sent + 1,
                                    least(greatest(coalesce(i.retry_ms, @schema@.back_off_ms(b.attempts)), 0),
                                          86400000)) n (unsent, retry_ms)
         WHERE i.outcome = 'apply' AND o.operation_id = b.operation_id
        RETURNING o.operation_id, i.ord, o.status, o.attempts > o.attempts_not_sent AS in_doubt,
                  b.claimed_attempt - b.attempts_not_sent = 1 AS first
    )
    SELECT array_agg(w.operation_id ORDER BY w.ord), array_agg(
               CASE w.status WHEN 'cancelled' THEN 'operation.cancelled' ELSE 'operation.unknown' END ORDER BY w.ord),
           array_agg(CASE WHEN w.status = 'cancelled' THEN NULL WHEN v_lost THEN '{"why": "lost_history"}'
                         ELSE '{"why": "unanswered"}' END::jsonb ORDER BY w.ord)
      INTO v_told, v_types, v_whys
      FROM written w
     WHERE w.status = 'cancelled' OR (w.in_doubt AND w.first AND (v_lost OR NOT v_not_sent)); -- in doubt for the first time
    PERFORM @schema@.emit_operations(t, v_told, v_types, v_whys);

    INSERT INTO @schema@.operation_evidence (at, operation_id, attempt, dispatch_owner, dispatch_revision, epoch, kind,
                                             detail)
    SELECT t, o.operation_id, i.attempt, i.owner, i.revision, l.epoch,
           CASE i.outcome WHEN 'apply' THEN v_kind WHEN 'missing' THEN 'unmatched' ELSE i.outcome END,
           jsonb_build_object('verb', p_verb, 'status', o.status, 'evidence', coalesce(i.evidence, '{}'))
      FROM unnest(p_operation_ids, p_owners, p_revisions, p_attempts, p_evidence, v_outcomes) WITH ORDINALITY
           i (operation_id, owner, revision, attempt, evidence, outcome, ord)
      JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
      LEFT JOIN @schema@.worker_leases l ON l.run_id = o.run_id
     WHERE i.outcome <> 'recorded'
     ORDER BY i.ord;
    PERFORM @schema@.refuse_operations(t, p_verb, p_operation_ids, p_owners, v_outcomes);

    RETURN QUERY
    SELECT i.ord::integer, CASE i.outcome WHEN 'apply' THEN 'recorded' ELSE i.outcome END, o.run_id, false, l.epoch,
           o.status
      FROM unnest(p_operation_ids, v_outcomes) WITH ORDINALITY i (operation_id, outcome, ord)
      LEFT JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
      LEFT JOIN @schema@.worker_leases l ON l.run_id = o.run_id
     ORDER BY i.ord;
END
$$;
