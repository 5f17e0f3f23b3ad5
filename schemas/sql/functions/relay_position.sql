-- relay_position(p_shard, p_max_age_ms) → last_batch, system_identifier, timeline, lsn, oldest_at, oldest_seq,
--                                         server_start, checked, held_back      interface; worker, operator, viewer
-- What a relay compares the identity it finds in Kafka with: the last batch whose rows are gone, the server's identity
-- and how far its WAL is flushed now, and the oldest row that waits (NULL: none), from whose time on a recovery reads
-- the result topic; when this server started, and whether the shard was compared since (relay_checked). held_back: how
-- many rows are older than p_max_age_ms (NULL: none are counted), at most 100,000. Informs only. One row.
-- Errors: 22023 for a shard out of range. Locks: none. Tables: control, relay_positions, outbox_events.
DROP FUNCTION IF EXISTS @iface@.relay_position(integer);
CREATE OR REPLACE FUNCTION @iface@.relay_position(p_shard integer, p_max_age_ms bigint DEFAULT NULL)
RETURNS TABLE (last_batch bigint, system_identifier text, timeline bigint, lsn text, oldest_at timestamptz,
               oldest_seq bigint, server_start timestamptz, checked boolean, held_back integer)
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
    v_start  timestamptz := pg_postmaster_start_time();
    v_oldest timestamptz := clock_timestamp() - p_max_age_ms * interval '1 millisecond';
    v_held   integer := 0;
BEGIN
    IF NOT coalesce(p_shard BETWEEN 0 AND (SELECT c.shards - 1 FROM @schema@.control c), false) THEN
        RAISE EXCEPTION 'relay_position: there is no shard %', p_shard USING ERRCODE = '22023';
    END IF;
    IF v_oldest IS NOT NULL THEN
        SELECT count(*) INTO v_held
          FROM (SELECT FROM @schema@.outbox_events e WHERE e.shard = p_shard AND e.at < v_oldest LIMIT 100000) q;
    END IF;
    RETURN QUERY
    SELECT coalesce(p.last_batch, 0), (SELECT s.system_identifier::text FROM pg_control_system() s),
           @schema@.server_timeline(), pg_current_wal_flush_lsn()::text, o.at, o.seq, v_start,
           coalesce(p.checked_start = v_start, false), v_held
      FROM (SELECT) one
      LEFT JOIN (SELECT e.at, e.seq FROM @schema@.outbox_events e
                  WHERE e.shard = p_shard ORDER BY e.seq LIMIT 1) o ON true
      LEFT JOIN @schema@.relay_positions p ON p.shard = p_shard;
END
$$;
