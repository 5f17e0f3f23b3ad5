-- claim_answer(p_ids[], p_outcomes[], t) → rows of a claim                   internal, @schema@
--
-- What claim_operations and claim_unknown answer: one row per item in the given order, filled in for the claimed ones.
-- ttl_ms is what is left of the claim at t: a session that reckons it from before it first asked is on the safe side,
-- for a repeated call too.
-- Locks: none. Tables: tool_operations, agent_runs, run_data, worker_leases.
CREATE OR REPLACE FUNCTION @schema@.claim_answer(p_ids text[], p_outcomes text[], t timestamptz)
RETURNS TABLE (
    item integer, outcome text, operation_id text, run_id uuid, tenant_id text, task_id text, step_id text,
    effect_version integer, tool_name text, request_digest text, request_body jsonb, external_key text,
    capability text, declaration jsonb, revision bigint, attempt integer, attempts_not_sent integer, epoch bigint,
    dispatch_until timestamptz, ttl_ms bigint, traceparent text, tracestate text, timeline bigint)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_timeline bigint := @schema@.server_timeline();
BEGIN
    RETURN QUERY
    SELECT i.ord::integer, i.outcome, i.id, o.run_id, r.tenant_id, r.task_id, o.step_id,
           o.effect_version, o.tool_name, o.request_digest, o.request_body, o.external_key,
           o.capability, o.declaration, o.claimed_revision, o.claimed_attempt, o.attempts_not_sent, l.epoch,
           o.dispatch_until,
           CASE WHEN o.operation_id IS NOT NULL
                THEN greatest(0, floor(extract(epoch FROM o.dispatch_until - t) * 1000))::bigint END,
           d.traceparent, d.tracestate,
           CASE WHEN o.operation_id IS NOT NULL THEN v_timeline END
      FROM unnest(p_ids, p_outcomes) WITH ORDINALITY i (id, outcome, ord)
      LEFT JOIN @schema@.tool_operations o ON i.outcome = 'claimed' AND o.operation_id = i.id
      LEFT JOIN @schema@.agent_runs r ON r.run_id = o.run_id
      LEFT JOIN @schema@.worker_leases l ON l.run_id = o.run_id
      LEFT JOIN @schema@.run_data d ON d.run_id = o.run_id
     ORDER BY i.ord;
END
$$;

-- claim_again(p_owner, p_token, OUT ids[], OUT outcomes[]): what a token that was used before still holds. NULL arrays:
-- it was never used. Takes the operations' locks like a first call, so that its answer is as durable as one.
-- Locks: operations (SKIP LOCKED). Tables: claims, tool_operations.
CREATE OR REPLACE FUNCTION @schema@.claim_again(p_owner text, p_token uuid, OUT ids text[], OUT outcomes text[])
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
    v_claim  @schema@.claims%ROWTYPE;
    v_locked text[];
    t        timestamptz;
BEGIN
    SELECT * INTO v_claim FROM @schema@.claims c WHERE c.token = p_token;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF v_claim.owner <> p_owner OR v_claim.operations IS NULL THEN
        RAISE EXCEPTION 'token % was used by another owner or for another verb', p_token USING ERRCODE = '22023';
    END IF;
    ids := v_claim.operations;
    SELECT array_agg(k.operation_id) INTO v_locked FROM (
        SELECT o.operation_id FROM @schema@.tool_operations o WHERE o.operation_id = ANY (ids)
         ORDER BY o.operation_id FOR NO KEY UPDATE SKIP LOCKED) k;
    t := clock_timestamp();
    SELECT coalesce(array_agg(CASE
               WHEN o.status = 'dispatching' AND o.dispatch_owner = p_owner AND o.claimed_revision = i.revision
                    AND o.dispatch_until > t
               THEN CASE WHEN o.operation_id = ANY (v_locked) THEN 'claimed' ELSE 'busy' END
               ELSE 'token_used' END ORDER BY i.ord), '{}')
      INTO outcomes
      FROM unnest(ids, v_claim.revisions) WITH ORDINALITY i (id, revision, ord)
      LEFT JOIN @schema@.tool_operations o ON o.operation_id = i.id;
END
$$;
