-- claim_choose(p_limit, p_tools[]) → operation ids, locked                   internal, @schema@
--
-- The choosing half of claim_operations: locks (SKIP LOCKED) up to p_limit operations that look claimable, the unsent
-- ones that are due first, then the oldest prepared ones. Each tool is first offered an equal share, so that the
-- backlog of one does not keep the others waiting; what is left over goes to those that have more. What "looks
-- claimable" is judged by this statement's snapshot only, to fill the batch well; the caller decides after the locks.
-- Locks: operations (SKIP LOCKED). Tables: tool_operations, agent_runs.
CREATE OR REPLACE FUNCTION @schema@.claim_choose(p_limit integer, p_tools text[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
    v_tools text[] := p_tools;
    v_tool  text;
    v_got   text[];
    v_ids   text[] := '{}';
    v_more  text[] := '{}';
    v_left  integer := p_limit;
    v_share integer;
    v_round integer;
BEGIN
    IF v_tools IS NULL THEN
        v_tools := @schema@.open_tools();
    END IF;
    FOR v_round IN 1 .. 2 LOOP
        FOREACH v_tool IN ARRAY v_tools LOOP
            EXIT WHEN v_left = 0;
            v_share := CASE WHEN v_round = 1 THEN (p_limit + cardinality(v_tools) - 1) / cardinality(v_tools)
                            ELSE v_left END;
            v_share := least(v_share, v_left);
            v_got := @schema@.claim_choose_tool(v_tool, v_share, v_ids, clock_timestamp());
            v_ids := v_ids || v_got;
            v_left := v_left - cardinality(v_got);
            IF cardinality(v_got) = v_share THEN
                v_more := v_more || v_tool;
            END IF;
        END LOOP;
        v_tools := v_more;
    END LOOP;
    RETURN v_ids;
END
$$;

-- claim_choose_tool(p_tool, p_limit, p_not, t): of one tool; p_not are locked by this transaction already, which SKIP
-- LOCKED would not skip. The instant is a parameter: a volatile function is never an index condition.
CREATE OR REPLACE FUNCTION @schema@.claim_choose_tool(p_tool text, p_limit integer, p_not text[], t timestamptz)
RETURNS text[]
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
    v_unsent   text[];
    v_prepared text[];
BEGIN
    SELECT array_agg(l.operation_id) INTO v_unsent FROM (
        SELECT o.operation_id
          FROM @schema@.tool_operations o
          JOIN @schema@.agent_runs r ON r.run_id = o.run_id
         WHERE o.status = 'unknown' AND o.tool_name = p_tool AND o.not_before <= t
           AND o.attempts = o.attempts_not_sent
           AND (r.status IN ('pending', 'running') OR o.detached OR o.compensates IS NOT NULL)
           AND o.operation_id <> ALL (p_not)
         ORDER BY o.not_before FOR NO KEY UPDATE OF o SKIP LOCKED LIMIT p_limit) l;
    p_limit := p_limit - coalesce(cardinality(v_unsent), 0);
    SELECT array_agg(l.operation_id) INTO v_prepared FROM (
        SELECT o.operation_id
          FROM @schema@.tool_operations o
          JOIN @schema@.agent_runs r ON r.run_id = o.run_id
          LEFT JOIN @schema@.tool_operations p ON p.operation_id = o.after_operation
         WHERE o.status = 'prepared' AND o.tool_name = p_tool
           AND (r.status IN ('pending', 'running') OR o.detached OR o.compensates IS NOT NULL)
           AND (o.after_operation IS NULL OR p.status IN ('succeeded', 'failed_final', 'cancelled'))
           AND o.operation_id <> ALL (p_not)
         ORDER BY o.created_at FOR NO KEY UPDATE OF o SKIP LOCKED LIMIT p_limit) l;
    RETURN coalesce(v_unsent, '{}') || coalesce(v_prepared, '{}');
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
