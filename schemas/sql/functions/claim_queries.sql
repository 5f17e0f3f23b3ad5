-- claim_queries(p_owner, p_token, p_limit, p_ttl_ms, p_tools[]) → claimed rows                        interface; worker
--
-- Gives operations in doubt to one reconciler, to ask the remote what became of them: exclusively, with a deadline. No
-- attempt and no step of the operation: attempts and revision stay, so that what an operator looked at stays true. During
-- it nobody else queries it or sends it again.
--
--   p_owner, p_token, p_limit, p_ttl_ms, p_tools   as in claim_operations; each tool gets its share of p_limit
--
-- Chosen are operations that may have been sent and are unknown, are due, and whose stored declaration has a query:
-- capability query or deterministic_id, or idempotency_key with "query": true.
-- attempt: of the latest dispatch claim. queries: the number of this query, for record_query. absent_final_at: from when on
-- "not found" is a fact (NULL: never). Only a claim made after it may say so: absent_counts. ttl_ms: what is left of it.
-- An operation whose query ran out is due again.
--
-- Outcomes: claimed; gate_closed (one row, nothing was looked at); token_used (asked again: no longer held).
-- Errors: 22023, 25001.
-- Locks: token (advisory), gate (shared), tool_limits and operations (SKIP LOCKED: never waits for a row).
-- Tables: control, claims, tool_limits, tool_operations, agent_runs, run_data, worker_leases.
CREATE OR REPLACE FUNCTION @iface@.claim_queries(p_owner text, p_token uuid, p_limit integer, p_ttl_ms bigint, p_tools text[])
RETURNS TABLE (
    item integer, outcome text, operation_id text, run_id uuid, tenant_id text, task_id text, step_id text,
    effect_version integer, tool_name text, request_digest text, request_body jsonb, external_key text, remote_id text,
    capability text, declaration jsonb, revision bigint, attempt integer, attempts_not_sent integer, queries integer,
    epoch bigint, first_sent_at timestamptz, absent_final_at timestamptz, absent_counts boolean, query_until timestamptz,
    ttl_ms bigint, traceparent text, tracestate text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET lock_timeout = '2s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_material = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_claim    @schema@.claims%ROWTYPE;
    v_tools    text[];
    v_allowed  jsonb;
    v_ids      text[];
    v_outcomes text[];
    v_changed  timestamptz;
    t          timestamptz;
BEGIN
    PERFORM @schema@.claim_check('claim_queries', p_owner, p_token, p_limit, p_ttl_ms, NULL);
    SELECT k.gate_changed_at INTO STRICT v_changed FROM @schema@.control k;
    SELECT * INTO v_claim FROM @schema@.claims k WHERE k.token = p_token;
    IF FOUND THEN
        IF v_claim.owner <> p_owner OR v_claim.operations IS NULL THEN
            RAISE EXCEPTION 'token % was used by another owner or for another verb', p_token USING ERRCODE = '22023';
        END IF;
        PERFORM FROM @schema@.tool_operations o WHERE o.operation_id = ANY (v_claim.operations)
          ORDER BY o.operation_id FOR NO KEY UPDATE SKIP LOCKED;
        t := clock_timestamp();
        v_ids := v_claim.operations;
        SELECT array_agg(CASE WHEN o.query_owner = p_owner AND o.queries = i.number AND o.query_until > t
                              THEN 'claimed' ELSE 'token_used' END ORDER BY i.ord)
          INTO v_outcomes
          FROM unnest(v_ids, v_claim.revisions) WITH ORDINALITY AS i(id, number, ord)
          LEFT JOIN @schema@.tool_operations o ON o.operation_id = i.id;
    ELSIF NOT @schema@.gate_open() THEN
        PERFORM @schema@.claim_take(p_owner, p_token, NULL, clock_timestamp(), NULL);
        v_ids := ARRAY[NULL::text];
        v_outcomes := ARRAY['gate_closed'];
    ELSE
        v_tools := @schema@.claim_tools(p_tools, NULL);
        v_allowed := @schema@.tool_allowance(v_tools);
        v_ids := @schema@.claim_choose('query', p_limit, v_tools, v_allowed, NULL);
        t := clock_timestamp();
        SELECT array_agg(o.operation_id ORDER BY i.ord), array_agg('claimed'::text) INTO v_ids, v_outcomes
          FROM unnest(v_ids) WITH ORDINALITY AS i(id, ord)
          JOIN @schema@.tool_operations o ON o.operation_id = i.id
         WHERE o.status = 'unknown' AND o.attempts > o.attempts_not_sent AND o.not_before <= t
           AND coalesce(o.query_until <= t, true) AND @schema@.has_query(o.capability, o.declaration);
        IF v_ids IS NULL THEN
            PERFORM @schema@.claim_take(p_owner, p_token, NULL, t, NULL);
        ELSE
            -- Not due for anybody until the query runs out; then for everybody.
            UPDATE @schema@.tool_operations o
               SET query_owner = p_owner, query_since = t, query_until = t + p_ttl_ms * interval '1 millisecond',
                   queries = o.queries + 1, not_before = t + p_ttl_ms * interval '1 millisecond'
             WHERE o.operation_id = ANY (v_ids);
            INSERT INTO @schema@.claims (token, owner, operations, revisions, made_at)
            SELECT p_token, p_owner, v_ids, array_agg(o.queries ORDER BY i.ord), t
              FROM unnest(v_ids) WITH ORDINALITY AS i(id, ord)
              JOIN @schema@.tool_operations o ON o.operation_id = i.id;
            PERFORM @schema@.tool_spend(v_ids, v_allowed, t);
        END IF;
    END IF;

    RETURN QUERY
    SELECT i.ord::integer, i.outcome, i.id, o.run_id, r.tenant_id, r.task_id, o.step_id, o.effect_version, o.tool_name,
           o.request_digest, o.request_body, o.external_key, o.remote_id, o.capability, o.declaration, o.revision, o.attempts,
           o.attempts_not_sent, o.queries, l.epoch, o.first_sent_at, a.final_at, coalesce(o.query_since >= a.final_at, false),
           o.query_until, greatest(0, floor(extract(epoch FROM o.query_until - t) * 1000))::bigint, d.traceparent, d.tracestate
      FROM unnest(v_ids, v_outcomes) WITH ORDINALITY AS i(id, outcome, ord)
      LEFT JOIN @schema@.tool_operations o ON i.outcome = 'claimed' AND o.operation_id = i.id
      LEFT JOIN @schema@.agent_runs r ON r.run_id = o.run_id
      LEFT JOIN @schema@.worker_leases l ON l.run_id = o.run_id
      LEFT JOIN @schema@.run_data d ON d.run_id = o.run_id
     CROSS JOIN LATERAL (SELECT @schema@.absent_final_at(o.capability, o.declaration, o.dispatch_until, v_changed)) a (final_at)
     ORDER BY i.ord;
END
$$;
