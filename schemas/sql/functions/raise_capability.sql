-- raise_capability(p_operation_ids[], p_revisions[], p_capability[], p_declaration[], p_who[], p_why[])
--                                     → item, outcome, status, revision, capability, detail           interface; operator
-- The declaration in force when an intent was registered is stored with it and decides. A person who has learned that the
-- remote can do more than that says (it remembers keys, it can be asked) raises it for an open operation, and answers for
-- that: a key that was never sent with the earlier attempts protects from nothing. Later claims and queries go by it; the
-- one before, who and why are kept as evidence.
--
-- Ranks: none < query < deterministic_id < idempotency_key. The same capability with another declaration is allowed, too.
-- Outcomes: ok (asked again by the same person: the same), stale, missing, terminal (settled), not_allowed (detail: it would
--           lower it, or a key without retention_ms).
-- Errors: 22023, also without who, why or a known capability; 25001.
-- Locks: operations in key order. Tables: control, tool_operations, worker_leases, operation_evidence.
CREATE OR REPLACE FUNCTION @iface@.raise_capability(p_operation_ids text[], p_revisions bigint[], p_capability text[],
    p_declaration jsonb[], p_who text[], p_why text[])
RETURNS TABLE (item integer, outcome text, status text, revision bigint, capability text, detail text)
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
    v_ranks    constant text[] := '{none,query,deterministic_id,idempotency_key}';
    v_outcomes text[];
    v_details  text[];
    t          timestamptz;
BEGIN
    IF EXISTS (SELECT FROM unnest(p_capability) AS u(capability) WHERE NOT coalesce(u.capability = ANY (v_ranks), false)) THEN
        RAISE EXCEPTION 'raise_capability: an unknown capability' USING ERRCODE = '22023';
    END IF;
    PERFORM @schema@.check_people('raise_capability', p_who, p_why);
    PERFORM @schema@.record_check('raise_capability', p_operation_ids, ARRAY[cardinality(p_operation_ids),
        cardinality(p_revisions), cardinality(p_capability), cardinality(p_declaration), cardinality(p_who),
        cardinality(p_why)], p_declaration);
    PERFORM FROM @schema@.tool_operations o WHERE o.operation_id = ANY (p_operation_ids)
      ORDER BY o.operation_id FOR NO KEY UPDATE;

    t := clock_timestamp();
    SELECT array_agg(CASE WHEN d.outcome = 'apply' AND d.why IS NOT NULL THEN 'not_allowed' ELSE d.outcome END ORDER BY d.ord),
           array_agg(CASE WHEN d.outcome = 'apply' THEN d.why END ORDER BY d.ord)
      INTO v_outcomes, v_details
      FROM (SELECT i.ord, CASE
               WHEN o.operation_id IS NULL THEN 'missing'
               WHEN o.revision = i.revision + 1 AND o.capability = i.capability
                    AND @schema@.was_manual(o.operation_id, 'raise_capability', i.revision, i.who) THEN 'ok'
               WHEN o.status IN ('succeeded', 'failed_final', 'cancelled') THEN 'terminal'
               WHEN o.revision IS DISTINCT FROM i.revision THEN 'stale'
               ELSE 'apply' END AS outcome, CASE
               WHEN array_position(v_ranks, i.capability) < array_position(v_ranks, o.capability)
                   THEN i.capability || ' is less than ' || o.capability
               WHEN i.capability = 'idempotency_key' AND @schema@.declared(i.declaration, 'retention_ms') IS NULL
                   THEN 'a key needs retention_ms'
               WHEN jsonb_typeof(i.declaration) <> 'object' THEN 'a declaration is an object' END AS why
              FROM unnest(p_operation_ids, p_revisions, p_capability, p_declaration, p_who) WITH ORDINALITY
                   AS i(operation_id, revision, capability, declaration, who, ord)
              LEFT JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id) d;

    INSERT INTO @schema@.operation_evidence (at, operation_id, epoch, kind, detail)
    SELECT t, o.operation_id, l.epoch, 'manual',
           jsonb_build_object('verb', 'raise_capability', 'who', i.who, 'why', i.why, 'login', session_user,
                              'expected_revision', i.revision, 'status', o.status, 'from', o.capability, 'to', i.capability,
                              'declaration', coalesce(i.declaration, '{}'), 'declaration_before', o.declaration)
      FROM unnest(p_operation_ids, p_revisions, p_capability, p_declaration, p_who, p_why, v_outcomes) WITH ORDINALITY
           AS i(operation_id, revision, capability, declaration, who, why, outcome, ord)
      JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
      LEFT JOIN @schema@.worker_leases l ON l.run_id = o.run_id
     WHERE i.outcome = 'apply' ORDER BY i.ord;
    -- What is in doubt is due at once by the new declaration.
    UPDATE @schema@.tool_operations o
       SET capability = i.capability, declaration = coalesce(i.declaration, '{}'),
           retention_ms = trunc(@schema@.declared(i.declaration, 'retention_ms'))::bigint,
           escalate_at = CASE WHEN o.escalated_at IS NULL THEN
               o.first_sent_at + @schema@.declared(i.declaration, 'escalate_after_ms')::float8 * interval '1 millisecond' END,
           not_before = CASE WHEN o.status = 'unknown' AND o.attempts > o.attempts_not_sent AND o.query_owner IS NULL
               THEN @schema@.due_again(i.capability, coalesce(i.declaration, '{}'), o.first_sent_at,
                                       trunc(@schema@.declared(i.declaration, 'retention_ms'))::bigint, t, 0)
               ELSE o.not_before END,
           revision = o.revision + 1, updated_at = t
      FROM unnest(p_operation_ids, p_capability, p_declaration, v_outcomes) AS i(operation_id, capability, declaration, outcome)
     WHERE o.operation_id = i.operation_id AND i.outcome = 'apply';

    RETURN QUERY
    SELECT i.ord::integer, CASE i.outcome WHEN 'apply' THEN 'ok' ELSE i.outcome END, o.status, o.revision, o.capability,
           v_details[i.ord]
      FROM unnest(p_operation_ids, v_outcomes) WITH ORDINALITY AS i(operation_id, outcome, ord)
      LEFT JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
     ORDER BY i.ord;
END
$$;
