-- claim_operations(p_owner, p_token, p_limit, p_ttl_ms, p_tools[], p_operation_ids[]) → claimed rows
--                                                                            interface; worker, operator
-- Gives operations to one dispatch session: exclusively, with a deadline, as a new attempt. One claim sends at most
-- once, and only before dispatch_until.
--
--   p_owner          the dispatch session: pod and a random token of its own
--   p_token          of this call: asking again with it answers the same operations while they are still held, takes
--                    nothing new and extends nothing. A fresh one for every new call, also after an empty answer.
--   p_limit, p_ttl_ms  how many at most (choosing only), and for how long (up to control.max_claim_ttl_ms)
--   p_tools          the tools this pod can call now (NULL: any). Each gets its share of p_limit, then the rest is
--                    given out in this order.
--   p_operation_ids  NULL: choose the oldest due ones. Else exactly these (hints), each with an outcome of its own.
--
-- What may be claimed: `prepared` operations, and `unsent` ones (unknown with attempts = attempts_not_sent) whose
-- back-off is over, for every capability; whose run is not terminal, unless detached, as what `compensate` registers is; and an
-- after_settled one once its predecessor is settled. The run's status is read after the operation's lock: a cancel
-- that committed before that is seen, one that comes later finds the operation dispatching and leaves it alone.
--
-- Outcomes: claimed; gate_closed (one row, nothing was looked at); token_used (asked again: no longer held);
--           and for named ones busy (locked, or dispatching), terminal (settled, or its run ended), not_ready
--           (back-off, predecessor, another tool, its tool's limit, or it may have been sent: claim_unknown), missing.
-- Errors: 22023, 25001.
-- Locks: token (advisory), gate (shared), tool_limits and operations (SKIP LOCKED: never waits for a row).
-- Tables: control, claims, tool_limits, tool_operations, agent_runs, run_data, worker_leases, operation_evidence.
CREATE OR REPLACE FUNCTION @iface@.claim_operations(
    p_owner text, p_token uuid, p_limit integer, p_ttl_ms bigint, p_tools text[], p_operation_ids text[])
RETURNS TABLE (
    item integer, outcome text, operation_id text, run_id uuid, tenant_id text, task_id text, step_id text,
    effect_version integer, tool_name text, request_digest text, request_body jsonb, external_key text,
    capability text, declaration jsonb, revision bigint, attempt integer, attempts_not_sent integer, epoch bigint,
    dispatch_until timestamptz, ttl_ms bigint, traceparent text, tracestate text, timeline bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET lock_timeout = '2s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_allowed  jsonb;
    v_tools    text[];
    v_locked   text[];
    v_ids      text[];
    v_outcomes text[];
    v_free     text[];
    t          timestamptz;
    v_until    timestamptz;
BEGIN
    PERFORM @schema@.claim_check('claim_operations', p_owner, p_token, p_limit, p_ttl_ms, p_operation_ids);
    SELECT a.ids, a.outcomes INTO v_ids, v_outcomes FROM @schema@.claim_again(p_owner, p_token) a;
    IF v_ids IS NOT NULL THEN
        RETURN QUERY SELECT * FROM @schema@.claim_answer(v_ids, v_outcomes, clock_timestamp());
        RETURN;
    END IF;
    IF NOT @schema@.gate_open() THEN
        PERFORM @schema@.claim_take(p_owner, p_token, NULL, clock_timestamp(), NULL);
        RETURN QUERY SELECT * FROM @schema@.claim_answer(ARRAY[NULL::text], ARRAY['gate_closed'], clock_timestamp());
        RETURN;
    END IF;

    v_tools := @schema@.claim_tools(p_tools, p_operation_ids);
    v_allowed := @schema@.tool_allowance(v_tools);
    IF p_operation_ids IS NULL THEN
        v_locked := @schema@.claim_choose('new', p_limit, v_tools, v_allowed,
                                          clock_timestamp() + p_ttl_ms * interval '1 millisecond');
    ELSE
        SELECT array_agg(l.operation_id) INTO v_locked FROM (
            SELECT o.operation_id FROM @schema@.tool_operations o WHERE o.operation_id = ANY (p_operation_ids)
             ORDER BY o.operation_id FOR NO KEY UPDATE SKIP LOCKED) l;
    END IF;

    t := clock_timestamp();
    v_until := t + p_ttl_ms * interval '1 millisecond';
    SELECT array_agg(d.id ORDER BY d.ord), array_agg(d.outcome ORDER BY d.ord),
           array_agg(d.id) FILTER (WHERE d.outcome = 'claimed')
      INTO v_ids, v_outcomes, v_free
      FROM (SELECT e.ord, e.id, CASE -- what its tool may not be given any more is left for the next claim
                   WHEN e.outcome = 'claimed' AND (v_allowed ->> e.tool_name)::integer
                        < count(*) FILTER (WHERE e.outcome = 'claimed') OVER (PARTITION BY e.tool_name ORDER BY e.ord)
                       THEN 'not_ready' ELSE e.outcome END AS outcome
      FROM (SELECT i.ord, i.id, o.tool_name, CASE
                   WHEN o.operation_id IS NULL THEN 'missing'
                   WHEN o.status IN ('succeeded', 'failed_final', 'cancelled') THEN 'terminal'
                   WHEN o.status = 'dispatching' THEN 'busy'
                   WHEN p_operation_ids IS NOT NULL AND NOT coalesce(i.id = ANY (v_locked), false) THEN 'busy'
                   WHEN r.status NOT IN ('pending', 'running') AND NOT o.detached
                       THEN 'terminal'
                   WHEN p_tools IS NOT NULL AND o.tool_name <> ALL (p_tools) THEN 'not_ready'
                   WHEN o.status = 'unknown' AND o.attempts > o.attempts_not_sent THEN 'not_ready'
                   WHEN o.status = 'unknown' AND coalesce(o.not_before > t, true) THEN 'not_ready'
                   WHEN o.after_operation IS NOT NULL
                        AND coalesce(p.status, '') NOT IN ('succeeded', 'failed_final', 'cancelled') THEN 'not_ready'
                   ELSE 'claimed' END AS outcome
              FROM unnest(coalesce(p_operation_ids, v_locked)) WITH ORDINALITY i (id, ord)
              LEFT JOIN @schema@.tool_operations o ON o.operation_id = i.id
              LEFT JOIN @schema@.agent_runs r ON r.run_id = o.run_id
              LEFT JOIN @schema@.tool_operations p ON p.operation_id = o.after_operation) e) d
     WHERE p_operation_ids IS NOT NULL OR d.outcome = 'claimed';

    PERFORM @schema@.claim_take(p_owner, p_token, v_free, t, v_until);
    PERFORM @schema@.tool_spend(v_free, v_allowed, t);
    RETURN QUERY SELECT * FROM @schema@.claim_answer(v_ids, v_outcomes, t);
END
$$;
