-- claim_unknown(p_owner, p_token, p_limit, p_ttl_ms, p_tools[], p_operation_ids[]) → claimed rows
--                                                                            interface; worker, operator
-- The one way to send an operation again that may have been sent: exclusive, gated, as a new attempt under the same
-- external key. Refused unless the declaration stored at registration makes that safe: capability `idempotency_key`
-- with a retention, and the whole term of this claim inside it, counted from the start of the first attempt that may
-- have been sent. Every other capability needs a query or a person, and stays `unknown`.
--
-- Parameters, answer and errors as claim_operations. A terminal run is no obstacle: its effect in doubt is to be
-- settled all the same, and a same-key retry cannot make a second one.
--
-- Outcomes: claimed, gate_closed, token_used; and for named ones busy, terminal (settled), not_ready (back-off,
--           another tool, or it was not sent yet: claim_operations), not_allowed, missing.
-- Locks: token (advisory), gate (shared), operations (SKIP LOCKED).
-- Tables: control, claims, tool_operations, agent_runs, run_data, worker_leases, operation_evidence.
CREATE OR REPLACE FUNCTION @iface@.claim_unknown(
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
    v_locked   text[];
    v_ids      text[];
    v_outcomes text[];
    v_free     text[];
    t          timestamptz;
    v_until    timestamptz;
BEGIN
    PERFORM @schema@.claim_check('claim_unknown', p_owner, p_token, p_limit, p_ttl_ms, p_operation_ids);
    SELECT a.ids, a.outcomes INTO v_ids, v_outcomes FROM @schema@.claim_again(p_owner, p_token) a;
    IF v_ids IS NOT NULL THEN
        RETURN QUERY SELECT * FROM @schema@.claim_answer(v_ids, v_outcomes, clock_timestamp());
        RETURN;
    END IF;
    IF NOT @schema@.gate_open() THEN
        RETURN QUERY SELECT * FROM @schema@.claim_answer(ARRAY[NULL::text], ARRAY['gate_closed'], clock_timestamp());
        RETURN;
    END IF;

    t := clock_timestamp();
    v_until := t + p_ttl_ms * interval '1 millisecond';
    IF p_operation_ids IS NULL THEN
        SELECT array_agg(l.operation_id) INTO v_locked FROM (
            SELECT c.operation_id
              FROM (SELECT DISTINCT u.tool FROM unnest(coalesce(p_tools, @schema@.open_tools())) u (tool)) n
             CROSS JOIN LATERAL (
                SELECT o.operation_id
                  FROM @schema@.tool_operations o
                 WHERE o.status = 'unknown' AND o.tool_name = n.tool AND o.not_before <= t
                   AND o.attempts > o.attempts_not_sent
                   AND @schema@.same_key_is_safe(o.capability, o.first_sent_at, o.retention_ms, v_until)
                 ORDER BY o.not_before FOR NO KEY UPDATE SKIP LOCKED LIMIT p_limit) c
             LIMIT p_limit) l;
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
      FROM (SELECT i.ord, i.id, CASE
                   WHEN o.operation_id IS NULL THEN 'missing'
                   WHEN o.status IN ('succeeded', 'failed_final', 'cancelled') THEN 'terminal'
                   WHEN o.status = 'dispatching' THEN 'busy'
                   WHEN p_operation_ids IS NOT NULL AND NOT coalesce(i.id = ANY (v_locked), false) THEN 'busy'
                   WHEN o.status = 'prepared' OR o.attempts = o.attempts_not_sent THEN 'not_ready'
                   WHEN NOT @schema@.same_key_is_safe(o.capability, o.first_sent_at, o.retention_ms, v_until)
                       THEN 'not_allowed'
                   WHEN p_tools IS NOT NULL AND o.tool_name <> ALL (p_tools) THEN 'not_ready'
                   WHEN coalesce(o.not_before > t, true) THEN 'not_ready'
                   ELSE 'claimed' END AS outcome
              FROM unnest(coalesce(p_operation_ids, v_locked)) WITH ORDINALITY i (id, ord)
              LEFT JOIN @schema@.tool_operations o ON o.operation_id = i.id) d
     WHERE p_operation_ids IS NOT NULL OR d.outcome = 'claimed';

    PERFORM @schema@.claim_take(p_owner, p_token, v_free, t, v_until);
    RETURN QUERY SELECT * FROM @schema@.claim_answer(v_ids, v_outcomes, t);
END
$$;
