-- stats() → one row                                                          interface; worker, operator, viewer
--
-- The gauges of /metrics, counted from the small partial indexes of what is open; no run or operation is named.
--   ready, held, parked, timers, stranded       runs by what they are in (stranded must be 0)
--   prepared, dispatching, unsent, unknown      operations; unknown: may have been sent, unsettled
--   unknown_oldest_seconds                      since the oldest of those may first have been sent; 0: none
--   outbox, outbox_oldest_seconds               events not published yet
--   tools   [{"tool", "prepared", "dispatching", "unsent", "unknown", "unknown_oldest_seconds"}, …]
--   shards  [{"shard", "rows", "oldest_seconds"}, …] of every shard
-- parked and stranded need a scan over all runs. All pods together spend at most a twentieth of one core on it: an answer
-- younger than twenty times what it cost to get is given again.
-- Locks: gauges (SKIP LOCKED). Tables: ready, worker_leases, agent_runs, timers, tool_operations, outbox_events, control,
--         gauges; view stranded.
CREATE OR REPLACE FUNCTION @iface@.stats()
RETURNS TABLE (ready bigint, held bigint, parked bigint, timers bigint, stranded bigint, prepared bigint,
               dispatching bigint, unsent bigint, unknown bigint, unknown_oldest_seconds double precision, outbox bigint,
               outbox_oldest_seconds double precision, tools jsonb, shards jsonb)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET lock_timeout = '2s'
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    t timestamptz := clock_timestamp();
    o record;
    e record;
    r record;
BEGIN
    r := @schema@.stats_of_runs();
    SELECT * INTO o FROM @schema@.stats_of_operations(t);
    SELECT sum(g.rows)::bigint AS rows, max(g.oldest) AS oldest,
           jsonb_agg(jsonb_build_object('shard', g.shard, 'rows', g.rows, 'oldest_seconds', g.oldest) ORDER BY g.shard)
               AS shards
      INTO e
      FROM (SELECT n.shard, count(x.seq) AS rows,
                   coalesce(extract(epoch FROM t - min(x.at)), 0)::double precision AS oldest
              FROM (SELECT generate_series(0, c.shards - 1) AS shard FROM @schema@.control c) n
              LEFT JOIN @schema@.outbox_events x ON x.shard = n.shard
             GROUP BY n.shard) g;
    RETURN QUERY
    SELECT (SELECT count(*) FROM @schema@.ready), (SELECT count(*) FROM @schema@.worker_leases l WHERE l.owner IS NOT NULL),
           r.parked, (SELECT count(*) FROM @schema@.timers), r.stranded, o.prepared, o.dispatching, o.unsent, o.unknown,
           o.oldest, e.rows, e.oldest, o.tools, e.shards;
END
$$;

-- stats_of_runs(OUT parked, OUT stranded): counted now, or by whoever counted last.
CREATE OR REPLACE FUNCTION @schema@.stats_of_runs(OUT parked bigint, OUT stranded bigint)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    g     @schema@.gauges%ROWTYPE;
    t     timestamptz := clock_timestamp();
    v_can boolean := current_setting('transaction_read_only') = 'off';
BEGIN
    SELECT * INTO g FROM @schema@.gauges;
    IF FOUND AND t BETWEEN g.at AND g.at + 20 * g.took THEN
        parked := g.parked;
        stranded := g.stranded;
        RETURN;
    END IF;
    IF v_can AND g.at IS NOT NULL THEN
        PERFORM FROM @schema@.gauges FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN -- somebody is counting
            parked := g.parked;
            stranded := g.stranded;
            RETURN;
        END IF;
    END IF;
    SELECT count(*) INTO parked FROM @schema@.agent_runs r
     WHERE r.wait_mode IS NOT NULL AND r.status IN ('pending', 'running') AND r.woke_reason IS NULL;
    SELECT count(*) INTO stranded FROM @schema@.stranded;
    IF v_can THEN
        INSERT INTO @schema@.gauges AS old (at, took, parked, stranded)
        VALUES (clock_timestamp(), clock_timestamp() - t, parked, stranded)
            ON CONFLICT (the_one) DO UPDATE
           SET at = excluded.at, took = excluded.took, parked = excluded.parked, stranded = excluded.stranded;
    END IF;
END
$$;

-- stats_of_operations(t): the operations' part, by their partial indexes whatever the planner thinks it knows.
CREATE OR REPLACE FUNCTION @schema@.stats_of_operations(t timestamptz, OUT prepared bigint, OUT dispatching bigint,
    OUT unsent bigint, OUT unknown bigint, OUT oldest double precision, OUT tools jsonb)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, @schema@, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
#variable_conflict use_column
BEGIN
    SELECT coalesce(sum(g.prepared), 0)::bigint, coalesce(sum(g.dispatching), 0)::bigint,
           coalesce(sum(g.unsent), 0)::bigint, coalesce(sum(g.unknown), 0)::bigint,
           coalesce(max(g.oldest), 0),
           coalesce(jsonb_agg(jsonb_build_object('tool', g.tool_name, 'prepared', g.prepared,
                                                 'dispatching', g.dispatching, 'unsent', g.unsent,
                                                 'unknown', g.unknown, 'unknown_oldest_seconds', coalesce(g.oldest, 0))
                              ORDER BY g.tool_name), '[]')
      INTO prepared, dispatching, unsent, unknown, oldest, tools
      FROM (SELECT x.tool_name, count(*) FILTER (WHERE x.status = 'prepared') AS prepared,
                   count(*) FILTER (WHERE x.status = 'dispatching') AS dispatching,
                   count(*) FILTER (WHERE x.status = 'unknown' AND x.attempts = x.attempts_not_sent) AS unsent,
                   count(*) FILTER (WHERE x.status = 'unknown' AND x.attempts > x.attempts_not_sent) AS unknown,
                   max(extract(epoch FROM t - x.first_sent_at))
                       FILTER (WHERE x.status = 'unknown' AND x.attempts > x.attempts_not_sent)::double precision
                       AS oldest
              FROM (SELECT a.* FROM @schema@.tool_operations a WHERE a.status = 'prepared'
                    UNION ALL SELECT a.* FROM @schema@.tool_operations a WHERE a.status = 'dispatching'
                    UNION ALL SELECT a.* FROM @schema@.tool_operations a WHERE a.status = 'unknown') x
             GROUP BY x.tool_name) g;
END
$$;
