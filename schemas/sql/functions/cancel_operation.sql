-- cancel_operation(p_operation_ids[], p_revisions[], p_who[], p_why[])
--                                     → item, outcome, run_id, woke, epoch, status, revision, policy, what   interface; operator
-- A person takes back an intent that was not sent: prepared, or unsent. One that may have been sent is never called
-- cancelled: policy is what its tool declares for it (finish, remote_cancel, compensate), and `what` says in words what
-- happens to it when its run is cancelled.
--
-- Outcomes: cancelled (asked again by the same person: the same); stale (it went on since p_revisions); not_allowed (it may
--           have been sent, in a history that was lost, too); terminal (settled); missing.
-- A run that waits for it is woken: the operation is settled. woke: send the hint.
-- Errors: 22023, also without who or why; 25001.
-- Locks: runs, operations (in key order), then ready, timers by wake_runs().
-- Tables: control, agent_runs, worker_leases, tool_operations, operation_evidence, ready, timers, signals, outbox_events.
CREATE OR REPLACE FUNCTION @iface@.cancel_operation(p_operation_ids text[], p_revisions bigint[], p_who text[], p_why text[])
RETURNS TABLE (item integer, outcome text, run_id uuid, woke boolean, epoch bigint, status text, revision bigint, policy text,
    what text)
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
    v_lost     boolean;
    v_ids      text[];
    v_runs     uuid[];
    v_woken    uuid[];
    t          timestamptz;
BEGIN
    PERFORM @schema@.check_people('cancel_operation', p_who, p_why);
    PERFORM @schema@.record_lock('cancel_operation', p_operation_ids, ARRAY[cardinality(p_operation_ids),
        cardinality(p_revisions), cardinality(p_who), cardinality(p_why)], '{}');

    v_lost := @schema@.history_in_doubt();
    t := clock_timestamp();
    SELECT array_agg(d.outcome ORDER BY d.ord), array_agg(d.operation_id ORDER BY d.ord) FILTER (WHERE d.outcome = 'apply'),
           array_agg(DISTINCT d.run_id) FILTER (WHERE d.outcome = 'apply')
      INTO v_outcomes, v_ids, v_runs
      FROM (SELECT i.ord, o.operation_id, o.run_id, CASE
               WHEN o.operation_id IS NULL THEN 'missing'
               WHEN o.status = 'cancelled' AND o.revision = i.revision + 1
                    AND @schema@.was_manual(o.operation_id, 'cancel_operation', i.revision, i.who) THEN 'cancelled'
               WHEN o.status IN ('succeeded', 'failed_final', 'cancelled') THEN 'terminal'
               WHEN o.revision IS DISTINCT FROM i.revision THEN 'stale'
               WHEN v_lost OR o.status = 'dispatching' OR o.attempts <> o.attempts_not_sent THEN 'not_allowed'
               ELSE 'apply' END AS outcome
              FROM unnest(p_operation_ids, p_revisions, p_who) WITH ORDINALITY AS i(operation_id, revision, who, ord)
              LEFT JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id) d;

    INSERT INTO @schema@.operation_evidence (at, operation_id, epoch, kind, detail)
    SELECT t, o.operation_id, l.epoch, 'manual',
           jsonb_build_object('verb', 'cancel_operation', 'who', i.who, 'why', i.why, 'login', session_user,
                              'expected_revision', i.revision, 'status', o.status)
      FROM unnest(p_operation_ids, p_revisions, p_who, p_why, v_outcomes) WITH ORDINALITY
           AS i(operation_id, revision, who, why, outcome, ord)
      JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
      LEFT JOIN @schema@.worker_leases l ON l.run_id = o.run_id
     WHERE i.outcome = 'apply' ORDER BY i.ord;
    PERFORM @schema@.cancel_operations(t, v_ids);
    v_woken := @schema@.wake_runs(v_runs, t);

    RETURN QUERY
    SELECT i.ord::integer, CASE i.outcome WHEN 'apply' THEN 'cancelled' ELSE i.outcome END, o.run_id,
           CASE i.outcome WHEN 'apply' THEN o.run_id = ANY (v_woken)
                WHEN 'cancelled' THEN EXISTS (SELECT FROM @schema@.ready y WHERE y.run_id = o.run_id)
                ELSE false END,
           l.epoch, o.status, o.revision,
           CASE WHEN i.outcome = 'not_allowed' THEN @schema@.policy_of(o.declaration) END,
           CASE WHEN i.outcome = 'not_allowed' THEN @schema@.cancel_outlook(o) END
      FROM unnest(p_operation_ids, v_outcomes) WITH ORDINALITY AS i(operation_id, outcome, ord)
      LEFT JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
      LEFT JOIN @schema@.worker_leases l ON l.run_id = o.run_id
     ORDER BY i.ord;
END
$$;

-- cancel_outlook(o) → text: the truth table of cancelling, in words: what happens to this operation when its run is
-- cancelled. Never that one which may have been sent was not executed.
CREATE OR REPLACE FUNCTION @schema@.cancel_outlook(o @schema@.tool_operations) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
SELECT CASE
    WHEN o.status = 'prepared' OR (o.status = 'unknown' AND o.attempts = o.attempts_not_sent)
        THEN 'it was not sent and is cancelled'
    WHEN o.status NOT IN ('dispatching', 'unknown') THEN 'it is settled and stays so'
    WHEN @schema@.undo_of(o.declaration) = 'remote_cancel'
        THEN 'it may have been executed; the remote is asked to cancel it, as an operation of its own'
    WHEN @schema@.undo_of(o.declaration) = 'compensate'
        THEN 'it may have been executed; once it has succeeded it is compensated, by an operation of its own'
    WHEN @schema@.policy_of(o.declaration) <> 'finish'
        THEN 'it may have been executed; no tool is declared to undo it, so a person decides'
    ELSE 'it may have been executed and stays authorised to finish; its outcome will be recorded' END
$$;
