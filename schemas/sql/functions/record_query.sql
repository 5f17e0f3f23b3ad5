-- record_query(p_operation_ids[], p_owners[], p_queries[], p_retry_ms[], p_evidence[]) → item, outcome, run_id, status
--                                                                                                     interface; worker
-- The holder of a query (claim_queries) says that it told nothing which settles the operation: no answer, or one that is no
-- fact. Kept as evidence; the operation is free again and due after p_retry_ms (NULL: a back-off by the number of
-- queries), for a query or, now that the remote was asked, for its own key. What does settle goes through converge.
--
-- Outcomes: recorded (also when it ran out and nobody came after it; asked again: the same), late (another query or claim
--           came, or it is settled: evidence only), missing (no such operation or query).
-- Errors: 22023, 25001.
-- Locks: operations in key order. Tables: control, tool_operations, worker_leases, operation_evidence.
CREATE OR REPLACE FUNCTION @iface@.record_query(
    p_operation_ids text[], p_owners text[], p_queries integer[], p_retry_ms bigint[], p_evidence jsonb[])
RETURNS TABLE (item integer, outcome text, run_id uuid, status text)
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
    t          timestamptz;
BEGIN
    PERFORM @schema@.record_check('record_query', p_operation_ids, ARRAY[cardinality(p_operation_ids), cardinality(p_owners),
        cardinality(p_queries), cardinality(p_retry_ms), cardinality(p_evidence)], p_evidence);
    PERFORM FROM @schema@.tool_operations o WHERE o.operation_id = ANY (p_operation_ids)
      ORDER BY o.operation_id FOR NO KEY UPDATE;

    t := clock_timestamp();
    SELECT array_agg(CASE
               WHEN o.operation_id IS NULL OR coalesce(i.number NOT BETWEEN 1 AND o.queries, true) THEN 'missing'
               WHEN o.query_owner = i.owner AND o.queries = i.number AND o.status = 'unknown' THEN 'apply'
               WHEN EXISTS (SELECT FROM @schema@.operation_evidence e
                             WHERE e.operation_id = i.operation_id AND e.kind = 'query' AND e.dispatch_owner = i.owner
                               AND e.detail -> 'query' = to_jsonb(i.number)) THEN 'recorded'
               ELSE 'late' END ORDER BY i.ord)
      INTO v_outcomes
      FROM unnest(p_operation_ids, p_owners, p_queries) WITH ORDINALITY AS i(operation_id, owner, number, ord)
      LEFT JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id;

    INSERT INTO @schema@.operation_evidence (at, operation_id, attempt, dispatch_owner, epoch, kind, detail)
    SELECT t, o.operation_id, o.attempts, i.owner, l.epoch, CASE i.outcome WHEN 'apply' THEN 'query' ELSE i.outcome END,
           jsonb_build_object('verb', 'record_query', 'query', i.number, 'since', o.query_since,
                              'evidence', coalesce(i.evidence, '{}'))
      FROM unnest(p_operation_ids, p_owners, p_queries, p_evidence, v_outcomes) WITH ORDINALITY
           AS i(operation_id, owner, number, evidence, outcome, ord)
      JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
      LEFT JOIN @schema@.worker_leases l ON l.run_id = o.run_id
     WHERE i.outcome IN ('apply', 'late') ORDER BY i.ord;
    PERFORM @schema@.query_over(t, array_agg(i.operation_id), array_agg(i.retry_ms))
       FROM unnest(p_operation_ids, p_retry_ms, v_outcomes) AS i(operation_id, retry_ms, outcome) WHERE i.outcome = 'apply';

    RETURN QUERY
    SELECT i.ord::integer, CASE i.outcome WHEN 'apply' THEN 'recorded' ELSE i.outcome END, o.run_id, o.status
      FROM unnest(p_operation_ids, v_outcomes) WITH ORDINALITY AS i(operation_id, outcome, ord)
      LEFT JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
     ORDER BY i.ord;
END
$$;

-- query_over(t, p_operation_ids[], p_retry_ms[]): these queries were answered and settled nothing. The caller holds the
-- operations' locks.
CREATE OR REPLACE FUNCTION @schema@.query_over(t timestamptz, p_operation_ids text[], p_retry_ms bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE @schema@.tool_operations o
       SET query_owner = NULL, query_since = NULL, query_until = NULL, queried_attempt = o.attempts,
           not_before = CASE WHEN o.status = 'unknown' AND o.attempts > o.attempts_not_sent THEN
                @schema@.due_again(o.capability, o.declaration, o.first_sent_at, o.retention_ms, t,
                    least(greatest(coalesce(i.retry_ms, @schema@.back_off_ms(o.queries)), 0), 86400000))
                ELSE o.not_before END
      FROM unnest(p_operation_ids, p_retry_ms) AS i(operation_id, retry_ms)
     WHERE o.operation_id = i.operation_id;
END
$$;
