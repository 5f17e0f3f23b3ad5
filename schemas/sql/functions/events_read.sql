-- events_read(p_shard, p_owner, p_epoch, p_after, p_limit, p_max_age_ms) → events   interface; worker
--
-- The relay's read: the next events of a shard in sequence order, for the holder of the service lease 'shard:<n>' in
-- that epoch. There is no cursor: a row is gone only by events_delete(), so one that commits late with a small number is
-- still found. p_after (NULL: none) is a hint that spares scanning dead versions of deleted rows: nothing at or below it
-- is shown, so its holder drops it at start and once a minute. p_max_age_ms (NULL: none): rows older than that are left
-- out. Kafka no longer remembers whether they were published, so a person looks at them (relay_position counts them).
--
-- Answer: rows with outcome ok; none: nothing to publish; or a single row gate_closed or not_holder.
-- lsn: what this server had flushed when the row was read: at or beyond its commit, and never lost by a crash.
-- Errors: 22023 for a shard or a limit (1 … 10,000) out of range, 25001. Locks: gate (shared).
-- Tables: control, service_leases, outbox_events.
DROP FUNCTION IF EXISTS @iface@.events_read(integer, text, bigint, bigint, integer);
CREATE OR REPLACE FUNCTION @iface@.events_read(p_shard integer, p_owner text, p_epoch bigint, p_after bigint,
                                               p_limit integer, p_max_age_ms bigint DEFAULT NULL)
RETURNS TABLE (item integer, outcome text, seq bigint, event_id uuid, tenant_id text, task_id text, run_id uuid,
               type text, epoch bigint, revision bigint, timeline bigint, at timestamptz, body jsonb, traceparent text,
               tracestate text, lsn text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET lock_timeout = '2s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_after  bigint := coalesce(p_after, 0);
    v_oldest timestamptz := coalesce(clock_timestamp() - p_max_age_ms * interval '1 millisecond', '-infinity');
BEGIN
    PERFORM @schema@.service_check('events_read', 'shard:' || p_shard, p_owner, 1);
    IF coalesce(p_limit, 0) NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'events_read: a limit of % is outside 1 … 10000', p_limit USING ERRCODE = '22023';
    END IF;
    IF NOT @schema@.gate_open() THEN
        RETURN QUERY SELECT 1, 'gate_closed', NULL::bigint, NULL::uuid, NULL::text, NULL::text, NULL::uuid, NULL::text,
            NULL::bigint, NULL::bigint, NULL::bigint, NULL::timestamptz, NULL::jsonb, NULL::text, NULL::text,
            NULL::text;
        RETURN;
    END IF;
    -- Without the row's lock: it protects no write of this call, and a relay that lost its shard right after this has
    -- lost its transactional id to the next one, too.
    IF NOT EXISTS (SELECT FROM @schema@.service_leases s
                    WHERE s.name = 'shard:' || p_shard AND s.owner = p_owner AND s.epoch = p_epoch
                      AND s.expires_at > clock_timestamp()) THEN
        RETURN QUERY SELECT 1, 'not_holder', NULL::bigint, NULL::uuid, NULL::text, NULL::text, NULL::uuid, NULL::text,
            NULL::bigint, NULL::bigint, NULL::bigint, NULL::timestamptz, NULL::jsonb, NULL::text, NULL::text,
            NULL::text;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT (row_number() OVER ())::integer, 'ok', q.seq, q.event_id, q.tenant_id, q.task_id, q.run_id, q.type, q.epoch,
           q.revision, q.timeline, q.at, q.body, q.traceparent, q.tracestate,
           pg_current_wal_flush_lsn()::text
      FROM (SELECT * FROM @schema@.outbox_events e
             WHERE e.shard = p_shard AND e.seq > v_after AND e.at >= v_oldest ORDER BY e.seq LIMIT p_limit) q;
END
$$;
