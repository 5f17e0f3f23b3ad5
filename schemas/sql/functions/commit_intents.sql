-- commit_intents: what becomes of every intent of a batch of commits. Internal, decides and writes nothing.
-- The caller holds the locks of the runs, and of the open operations of every run that registers a version above 1.
-- One row an intent, in the order given:
--   verdict    new, same (registered before, exactly so), invalid, intent_conflict, effect_in_doubt
--   detail     why not
--   replaces   lower versions of the step that were not sent: cancelled with this registration. While a history may have
--              been lost they may have been sent in it, too (in doubt): the caller's cancel_operations() says so
--   after      the lower version that may have been sent and is not settled: this one waits for it (after_settled)
--   adopted    the operation of an earlier run of the submission that had this very effect
-- Tables: agent_runs, tool_operations.
CREATE OR REPLACE FUNCTION @schema@.commit_intents(p_run_ids uuid[], p_item integer[], p_operation_id text[],
    p_step text[], p_version integer[], p_tool text[], p_digest text[], p_body jsonb[], p_capability text[],
    p_external_key text[], p_after_settled boolean[], p_compensates text[], p_max_bytes integer,
    OUT o_verdict text[], OUT o_detail text[], OUT o_replaces text[], OUT o_after text[], OUT o_adopted text[])
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_n     integer := cardinality(p_item);
    v_times jsonb;
    v_lost  boolean := false;
BEGIN
    IF EXISTS (SELECT FROM unnest(p_version) AS u(version) WHERE u.version > 1) THEN
        v_lost := @schema@.history_in_doubt();
    END IF;
    -- How often each step appears in one commit; two intents for a step are a mistake, whichever versions they name.
    SELECT jsonb_object_agg(d.item || '/' || d.step, d.times) FILTER (WHERE d.times > 1) INTO v_times
    FROM (SELECT i.item, i.step, count(*) AS times FROM unnest(p_item, p_step) AS i(item, step)
          WHERE i.step IS NOT NULL GROUP BY 1, 2) d;

    SELECT array_agg(d.verdict ORDER BY d.ord),
           array_agg(CASE d.verdict
               WHEN 'invalid' THEN 'intent ' || coalesce(d.operation_id, d.ord::text) || ': ' || d.why
               WHEN 'intent_conflict' THEN d.operation_id || ' is registered with another run, tool or request'
               WHEN 'effect_in_doubt' THEN d.in_doubt || ' may have been sent and is not settled' END ORDER BY d.ord),
           array_agg(CASE WHEN d.verdict = 'new' AND d.adopted IS NULL AND d.after_settled THEN d.in_doubt END ORDER BY d.ord),
           array_agg(CASE WHEN d.verdict = 'new' THEN d.adopted END ORDER BY d.ord)
    INTO o_verdict, o_detail, o_after, o_adopted
    FROM (SELECT k.ord, k.operation_id, k.after_settled, w.why, p.in_doubt, a.adopted,
                 CASE WHEN e.operation_id IS NOT NULL AND (e.run_id <> r.run_id OR e.tool_name IS DISTINCT FROM k.tool
                           OR e.request_digest IS DISTINCT FROM k.digest) THEN 'intent_conflict'
                      WHEN w.why IS NOT NULL THEN 'invalid'
                      WHEN e.operation_id IS NOT NULL THEN 'same'
                      WHEN p.in_doubt IS NOT NULL AND NOT k.after_settled AND k.compensates IS DISTINCT FROM p.in_doubt THEN 'effect_in_doubt'
                      ELSE 'new' END AS verdict
          FROM (SELECT g.n AS ord, p_item[g.n] AS item, p_operation_id[g.n] AS operation_id, p_step[g.n] AS step,
                       p_version[g.n] AS version, p_tool[g.n] AS tool, p_digest[g.n] AS digest, p_body[g.n] AS body,
                       p_capability[g.n] AS capability, p_external_key[g.n] AS external_key,
                       coalesce(p_after_settled[g.n], false) AS after_settled, p_compensates[g.n] AS compensates
                FROM generate_series(1, v_n) AS g(n) OFFSET 0) k
          LEFT JOIN @schema@.agent_runs r ON r.run_id = p_run_ids[k.item]
          LEFT JOIN @schema@.tool_operations e ON e.operation_id = k.operation_id
          LEFT JOIN LATERAL (
              SELECT max(o.effect_version) AS newest,
                     (array_agg(o.operation_id ORDER BY o.effect_version DESC)
                         FILTER (WHERE o.effect_version < k.version
                                   AND (o.status = 'dispatching'
                                        OR (o.status = 'unknown' AND o.attempts <> o.attempts_not_sent)
                                        OR (v_lost AND o.status IN ('prepared', 'unknown')))))[1] AS in_doubt
              FROM @schema@.tool_operations o WHERE o.run_id = r.run_id AND o.step_id = k.step) p ON true
          LEFT JOIN LATERAL (SELECT @schema@.adoptable(r.run_id, r.first_run_id, k.step, k.tool, k.digest) AS adopted
                             WHERE r.prev_run_id IS NOT NULL AND NOT r.fresh AND e.operation_id IS NULL) a ON true
          CROSS JOIN LATERAL (SELECT CASE
              WHEN k.operation_id IS NULL OR k.step IS NULL OR k.version IS NULL OR k.tool IS NULL OR k.digest IS NULL
                   OR k.body IS NULL OR k.external_key IS NULL THEN 'a member is missing'
              WHEN '' IN (k.step, k.tool, k.digest) THEN 'a member is empty'
              WHEN k.version < 1 THEN 'effect_version must be positive'
              WHEN length(k.operation_id) > 200 THEN 'operation_id is longer than 200'
              WHEN k.operation_id <> r.tenant_id || '/' || r.run_id || '/' || k.step || '/' || k.version
                  THEN 'operation_id must be tenant/run/step/effect_version'
              -- Another key could meet the effect of another intent, and the remote's answer to that would count for this one.
              WHEN k.external_key NOT IN (k.operation_id,
                       r.tenant_id || '/' || r.first_run_id || '/' || k.step || '/' || k.version)
                  THEN 'external_key must be the operation_id, or that of the submission''s first run'
              WHEN k.capability NOT IN ('idempotency_key', 'deterministic_id', 'query', 'none') THEN 'unknown capability'
              WHEN pg_column_size(k.body) > p_max_bytes THEN 'the request is larger than ' || p_max_bytes || ' bytes'
              WHEN v_times ? (k.item || '/' || k.step) THEN 'the step is planned twice in one commit'
              WHEN e.operation_id IS NULL AND p.newest > k.version THEN 'version ' || p.newest || ' is registered'
              WHEN k.compensates IS NOT NULL AND NOT EXISTS (
                  SELECT 1 FROM @schema@.tool_operations o JOIN @schema@.agent_runs c ON c.run_id = o.run_id
                  WHERE o.operation_id = k.compensates AND c.first_run_id = r.first_run_id)
                  THEN 'compensates no operation of this submission'
              END AS why OFFSET 0) w OFFSET 0) d;

    SELECT array_agg(DISTINCT o.operation_id) INTO o_replaces
    FROM generate_series(1, v_n) AS g(n)
    JOIN @schema@.tool_operations o ON o.run_id = p_run_ids[p_item[g.n]] AND o.step_id = p_step[g.n]
    WHERE o_verdict[g.n] = 'new' AND o.effect_version < p_version[g.n]
      AND (o.status = 'prepared' OR (o.status = 'unknown' AND o.attempts = o.attempts_not_sent));
END $$;

-- adoptable(…) → operation_id: the effect of an earlier run of the same submission that answers this intent: the same
-- step, tool and request, succeeded, not compensated (under the name of any run that adopted it), not replaced by a higher
-- version that may have had its effect.
CREATE OR REPLACE FUNCTION @schema@.adoptable(p_run_id uuid, p_first_run_id uuid, p_step text, p_tool text, p_digest text)
RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT o.operation_id
            FROM @schema@.chain_of(p_first_run_id) AS h(run_id)
            JOIN @schema@.tool_operations o ON o.run_id = h.run_id AND o.step_id = p_step
            WHERE h.run_id <> p_run_id AND o.tool_name = p_tool AND o.request_digest = p_digest
              AND o.status = 'succeeded' AND o.adopted_from IS NULL
              AND NOT EXISTS (SELECT 1 FROM @schema@.tool_operations c
                              WHERE c.compensates = ANY (o.operation_id || ARRAY(
                                        SELECT x.operation_id FROM @schema@.chain_of(p_first_run_id) AS h3(run_id)
                                        JOIN @schema@.tool_operations x ON x.run_id = h3.run_id AND x.step_id = p_step
                                        WHERE x.adopted_from = o.operation_id))
                                AND c.status NOT IN ('cancelled', 'failed_final'))
              AND NOT EXISTS (SELECT 1 FROM @schema@.chain_of(p_first_run_id) AS h2(run_id)
                              JOIN @schema@.tool_operations n ON n.run_id = h2.run_id AND n.step_id = p_step
                              WHERE n.effect_version > o.effect_version
                                AND n.status NOT IN ('cancelled', 'failed_final'))
            ORDER BY o.created_at DESC LIMIT 1);
END $$;
