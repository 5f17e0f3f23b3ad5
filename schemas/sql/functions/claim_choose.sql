-- claim_choose(p_kind, p_limit, p_tools[], p_allowed, p_until) → operation ids, locked              internal, @schema@
--
-- The choosing half of claim_operations ('new'), claim_unknown ('again') and claim_queries ('query'): locks (SKIP LOCKED) up
-- to p_limit operations that look claimable, what is due first, then the oldest prepared ones. Each tool is first offered
-- an equal share, so that the backlog of one, or its being slow, does not keep the others waiting; what is left over goes
-- to those that have more; none is given more than p_allowed says (tool_allowance). What "looks claimable" is judged by
-- this statement's snapshot only, to fill the batch well; the caller decides after the locks.
-- Locks: operations (SKIP LOCKED). Tables: tool_operations, agent_runs.
CREATE OR REPLACE FUNCTION @schema@.claim_choose(p_kind text, p_limit integer, p_tools text[], p_allowed jsonb,
                                                 p_until timestamptz) RETURNS text[]
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
    v_tools text[] := p_tools;
    v_tool  text;
    v_got   text[];
    v_ids   text[] := '{}';
    v_more  text[] := '{}';
    v_given jsonb := '{}';  -- tool → how many it was given in the first round
    v_left  integer := p_limit;
    v_share integer;
    v_may   integer;
    v_round integer;
BEGIN
    FOR v_round IN 1 .. 2 LOOP
        FOREACH v_tool IN ARRAY v_tools LOOP
            EXIT WHEN v_left = 0;
            v_share := CASE WHEN v_round = 1 THEN (p_limit + cardinality(v_tools) - 1) / cardinality(v_tools)
                            ELSE v_left END;
            v_may := (p_allowed ->> v_tool)::integer - coalesce((v_given ->> v_tool)::integer, 0);
            v_share := least(v_share, v_left, v_may);
            CONTINUE WHEN v_share <= 0;
            v_got := @schema@.claim_choose_tool(p_kind, v_tool, v_share, v_ids, clock_timestamp(), p_until);
            v_ids := v_ids || v_got;
            v_left := v_left - cardinality(v_got);
            IF cardinality(v_got) = v_share THEN
                v_more := v_more || v_tool;
                v_given := v_given || jsonb_build_object(v_tool, v_share);
            END IF;
        END LOOP;
        v_tools := v_more;
    END LOOP;
    RETURN v_ids;
END
$$;

-- claim_choose_tool(p_kind, p_tool, p_limit, p_not, t, p_until): of one tool; p_not are locked by this transaction already,
-- which SKIP LOCKED would not skip. Instants are parameters: a volatile function is never an index condition.
CREATE OR REPLACE FUNCTION @schema@.claim_choose_tool(p_kind text, p_tool text, p_limit integer, p_not text[],
                                                      t timestamptz, p_until timestamptz) RETURNS text[]
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
    v_unsent   text[];
    v_prepared text[];
BEGIN
    IF p_kind = 'again' THEN
        RETURN ARRAY(
            SELECT o.operation_id
              FROM @schema@.tool_operations o
             WHERE o.status = 'unknown' AND o.tool_name = p_tool AND o.not_before <= t
               AND o.attempts > o.attempts_not_sent AND coalesce(o.query_until <= t, true)
               AND @schema@.same_key_is_safe(o.capability, o.first_sent_at, o.retention_ms, p_until)
               AND (o.queried_attempt = o.attempts OR NOT @schema@.has_query(o.capability, o.declaration))
               AND o.operation_id <> ALL (p_not)
             ORDER BY o.not_before FOR NO KEY UPDATE OF o SKIP LOCKED LIMIT p_limit);
    ELSIF p_kind = 'query' THEN
        RETURN ARRAY(
            SELECT o.operation_id
              FROM @schema@.tool_operations o
             WHERE o.status = 'unknown' AND o.tool_name = p_tool AND o.not_before <= t
               AND o.attempts > o.attempts_not_sent AND coalesce(o.query_until <= t, true)
               AND @schema@.has_query(o.capability, o.declaration)
               AND o.operation_id <> ALL (p_not)
             ORDER BY o.not_before FOR NO KEY UPDATE OF o SKIP LOCKED LIMIT p_limit);
    END IF;
    SELECT array_agg(l.operation_id) INTO v_unsent FROM (
        SELECT o.operation_id
          FROM @schema@.tool_operations o
          JOIN @schema@.agent_runs r ON r.run_id = o.run_id
         WHERE o.status = 'unknown' AND o.tool_name = p_tool AND o.not_before <= t
           AND o.attempts = o.attempts_not_sent
           AND (r.status IN ('pending', 'running') OR o.detached)
           AND o.operation_id <> ALL (p_not)
         ORDER BY o.not_before FOR NO KEY UPDATE OF o SKIP LOCKED LIMIT p_limit) l;
    p_limit := p_limit - coalesce(cardinality(v_unsent), 0);
    SELECT array_agg(l.operation_id) INTO v_prepared FROM (
        SELECT o.operation_id
          FROM @schema@.tool_operations o
          JOIN @schema@.agent_runs r ON r.run_id = o.run_id
          LEFT JOIN @schema@.tool_operations p ON p.operation_id = o.after_operation
         WHERE o.status = 'prepared' AND o.tool_name = p_tool
           AND (r.status IN ('pending', 'running') OR o.detached)
           AND (o.after_operation IS NULL OR p.status IN ('succeeded', 'failed_final', 'cancelled'))
           AND o.operation_id <> ALL (p_not)
         ORDER BY o.created_at FOR NO KEY UPDATE OF o SKIP LOCKED LIMIT p_limit) l;
    RETURN coalesce(v_unsent, '{}') || coalesce(v_prepared, '{}');
END
$$;

-- claim_tools(p_tools[], p_operation_ids[]): the tools that a claim may speak of, each once and in the caller's order. An
-- operation's tool never changes, so it may be read before any lock.
CREATE OR REPLACE FUNCTION @schema@.claim_tools(p_tools text[], p_operation_ids text[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
BEGIN
    IF p_operation_ids IS NOT NULL THEN
        RETURN ARRAY(SELECT DISTINCT o.tool_name FROM @schema@.tool_operations o WHERE o.operation_id = ANY (p_operation_ids));
    ELSIF p_tools IS NULL THEN
        RETURN @schema@.open_tools();
    END IF;
    RETURN ARRAY(SELECT u.tool FROM unnest(p_tools) WITH ORDINALITY AS u(tool, ord)
                  WHERE u.tool IS NOT NULL GROUP BY u.tool ORDER BY min(u.ord));
END
$$;

-- open_tools(): the names of tools that have prepared or unknown operations, one index probe for each.
CREATE OR REPLACE FUNCTION @schema@.open_tools() RETURNS text[]
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
    v_tools text[] := '{}';
    v_tool  text := '';
BEGIN
    LOOP
        SELECT min(n.tool_name) INTO v_tool FROM (
            (SELECT o.tool_name FROM @schema@.tool_operations o
              WHERE o.status = 'prepared' AND o.tool_name > v_tool ORDER BY o.tool_name LIMIT 1)
            UNION ALL
            (SELECT o.tool_name FROM @schema@.tool_operations o
              WHERE o.status = 'unknown' AND o.tool_name > v_tool ORDER BY o.tool_name LIMIT 1)) n;
        EXIT WHEN v_tool IS NULL;
        v_tools := v_tools || v_tool;
    END LOOP;
    RETURN v_tools;
END
$$;
DROP FUNCTION IF EXISTS @schema@.claim_choose(integer, text[]), @schema@.claim_choose_tool(text, integer, text[], timestamptz);
