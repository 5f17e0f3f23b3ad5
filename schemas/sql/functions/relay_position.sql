-- relay_position(p_shard) → last_batch, system_identifier, timeline, lsn, oldest_at, oldest_seq
--                                                                            interface; worker, operator, viewer
-- What a relay compares the identity it finds in Kafka with: the last batch whose rows are gone, the server's identity
-- and how far its WAL is flushed now, and the oldest row that waits (NULL: none), from whose time on a recovery reads
-- the result topic. Informs only. One row.
-- Errors: 22023 for a shard out of range. Locks: none. Tables: control, relay_positions, outbox_events.
CREATE OR REPLACE FUNCTION @iface@.relay_position(p_shard integer)
RETURNS TABLE (last_batch bigint, system_identifier text, timeline bigint, lsn text, oldest_at timestamptz,
               oldest_seq bigint)
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
BEGIN
    IF NOT coalesce(p_shard BETWEEN 0 AND (SELECT c.shards - 1 FROM @schema@.control c), false) THEN
        RAISE EXCEPTION 'relay_position: there is no shard %', p_shard USING ERRCODE = '22023';
    END IF;
    RETURN QUERY
    SELECT coalesce((SELECT p.last_batch FROM @schema@.relay_positions p WHERE p.shard = p_shard), 0),
           (SELECT s.system_identifier::text FROM pg_control_system() s), @schema@.server_timeline(),
           pg_current_wal_flush_lsn()::text, o.at, o.seq
      FROM (SELECT) one
      LEFT JOIN (SELECT e.at, e.seq FROM @schema@.outbox_events e
                  WHERE e.shard = p_shard ORDER BY e.seq LIMIT 1) o ON true;
END
$$;
