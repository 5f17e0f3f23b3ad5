-- tool_allowance(p_tools[]) → {"tool": how many more}                        internal, @schema@
--
-- How many requests more each of these tools may be given now, over all pods: what is missing to its max_in_flight, and
-- what its token bucket holds. A tool that is not named in the answer has no limit. One whose row another claim holds at
-- this moment is given nothing this time: a claim never waits, and the next one comes soon.
-- In flight is what is dispatching, also past its deadline until somebody recorded that, and what is being queried.
-- Locks: tool_limits (SKIP LOCKED), before any operation, until the end of the transaction: claims of one limited tool are
--        counted one after the other. Tables: tool_limits, tool_operations.
CREATE OR REPLACE FUNCTION @schema@.tool_allowance(p_tools text[]) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
    v_locked text[];
    v_names  text[];
    t        timestamptz;
BEGIN
    SELECT array_agg(m.tool_name) INTO v_names FROM @schema@.tool_limits m WHERE m.tool_name = ANY (p_tools);
    IF v_names IS NULL THEN
        RETURN '{}';
    END IF;
    SELECT coalesce(array_agg(k.tool_name), '{}') INTO v_locked FROM (
        SELECT m.tool_name FROM @schema@.tool_limits m WHERE m.tool_name = ANY (v_names)
         ORDER BY m.tool_name FOR NO KEY UPDATE SKIP LOCKED) k;
    t := clock_timestamp();
    RETURN (SELECT jsonb_object_agg(m.tool_name, CASE WHEN m.tool_name = ANY (v_locked) THEN greatest(0, least(
                       m.max_in_flight - CASE WHEN m.max_in_flight IS NOT NULL
                                              THEN @schema@.in_flight(m.tool_name, m.max_in_flight, t) END,
                       CASE WHEN m.rate_per_s IS NOT NULL THEN floor(@schema@.bucket(m, t))::integer END, 100000))
                   ELSE 0 END)
              FROM @schema@.tool_limits m WHERE m.tool_name = ANY (v_names));
END
$$;

-- bucket(m, t): the tokens of a tool's bucket at t.
CREATE OR REPLACE FUNCTION @schema@.bucket(m @schema@.tool_limits, t timestamptz) RETURNS double precision
LANGUAGE sql IMMUTABLE AS $$
SELECT least(m.burst, m.tokens + greatest(0, extract(epoch FROM t - m.tokens_at)) * m.rate_per_s)
$$;

-- in_flight(p_tool, p_most, t): requests to that tool that may be on their way, counted up to p_most.
CREATE OR REPLACE FUNCTION @schema@.in_flight(p_tool text, p_most integer, t timestamptz) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT count(*) FROM (
                (SELECT FROM @schema@.tool_operations o
                  WHERE o.status = 'dispatching' AND o.tool_name = p_tool LIMIT p_most)
                UNION ALL
                (SELECT FROM @schema@.tool_operations o
                  WHERE o.query_owner IS NOT NULL AND o.tool_name = p_tool AND o.query_until > t LIMIT p_most)) x);
END
$$;

-- tool_spend(p_ids[], p_allowed, t): takes from the buckets what a claim has given out.
CREATE OR REPLACE FUNCTION @schema@.tool_spend(p_ids text[], p_allowed jsonb, t timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF p_allowed = '{}' OR p_ids IS NULL THEN
        RETURN;
    END IF;
    UPDATE @schema@.tool_limits m SET tokens = @schema@.bucket(m, t) - g.n, tokens_at = t
      FROM (SELECT o.tool_name, count(*) AS n FROM @schema@.tool_operations o WHERE o.operation_id = ANY (p_ids)
             GROUP BY o.tool_name) g
     WHERE m.tool_name = g.tool_name AND m.rate_per_s IS NOT NULL AND p_allowed ? g.tool_name;
END
$$;
