-- relay_checked(p_shard, p_owner, p_epoch, p_server_start) → outcome         interface; worker
--
-- The holder of 'shard:<n>' has compared what Kafka remembers of that shard with this server: either they agree, or it
-- has closed the gate. p_server_start is what relay_position() answered before the comparison: a server that started
-- again meanwhile, perhaps from an older copy of its data, is not the one that was compared. When all shards were
-- compared under this start, the gate answers relay_unchecked no more.
--
-- Outcomes: recorded, stale (the server has started again: compare again), not_holder (of that lease at this moment).
-- Errors: 22023 for a shard out of range, 25001. Locks: service lease, control, relay position.
-- Tables: service_leases, control, relay_positions.
CREATE OR REPLACE FUNCTION @iface@.relay_checked(p_shard integer, p_owner text, p_epoch bigint,
                                                 p_server_start timestamptz)
RETURNS TABLE (outcome text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET lock_timeout = '2s'
SET jit = off
AS $$
BEGIN
    PERFORM @schema@.service_check('relay_checked', 'shard:' || p_shard, p_owner, 1);
    IF NOT @schema@.service_holds('shard:' || p_shard, p_owner, p_epoch) THEN
        RETURN QUERY SELECT 'not_holder';
        RETURN;
    END IF;
    IF p_server_start IS DISTINCT FROM pg_postmaster_start_time() THEN
        RETURN QUERY SELECT 'stale';
        RETURN;
    END IF;
    -- Under the control row: of two shards that are the last ones, the second sees the first.
    PERFORM FROM @schema@.control FOR NO KEY UPDATE;
    INSERT INTO @schema@.relay_positions AS p (shard, checked_start) VALUES (p_shard, p_server_start)
        ON CONFLICT (shard) DO UPDATE SET checked_start = excluded.checked_start;
    UPDATE @schema@.control c SET relay_checked_start = p_server_start
     WHERE c.relay_checked_start IS DISTINCT FROM p_server_start
       AND c.shards = (SELECT count(*) FROM @schema@.relay_positions p
                        WHERE p.shard < c.shards AND p.checked_start = p_server_start);
    RETURN QUERY SELECT 'recorded';
END
$$;
