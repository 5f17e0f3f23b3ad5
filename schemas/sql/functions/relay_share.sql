-- relay_share(p_owner, p_ttl_ms) → pods, share                               interface; worker
--
-- A pod that relays says for how long it is there, and is told how many pods are, and how many shards are its share: all
-- of them divided by the pods, rounded up. Whoever holds more lets go of the surplus, whoever holds less may take what is
-- free. It decides nothing: who holds a shard is decided by the shard's service lease. p_ttl_ms NULL: the pod leaves.
--
-- Errors: 22023 for an owner or a TTL that service_acquire() refuses too, 25001.
-- Locks: its own row; the rows of pods long gone, which are removed, unless somebody has them. Tables: relay_pods, control.
CREATE OR REPLACE FUNCTION @iface@.relay_share(p_owner text, p_ttl_ms bigint)
RETURNS TABLE (pods integer, share integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET lock_timeout = '2s'
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
BEGIN
    PERFORM @schema@.service_check('relay_share', 'shard:0', p_owner, coalesce(p_ttl_ms, 1));
    t := clock_timestamp();
    IF p_ttl_ms IS NULL THEN
        DELETE FROM @schema@.relay_pods r WHERE r.owner = p_owner;
    ELSE
        INSERT INTO @schema@.relay_pods AS r (owner, expires_at)
        VALUES (p_owner, t + p_ttl_ms * interval '1 millisecond')
            ON CONFLICT (owner) DO UPDATE SET expires_at = excluded.expires_at;
    END IF;
    DELETE FROM @schema@.relay_pods r
     WHERE r.owner IN (SELECT g.owner FROM @schema@.relay_pods g
                        WHERE g.expires_at < t - interval '1 minute' FOR UPDATE SKIP LOCKED);
    RETURN QUERY
    SELECT n.pods, (c.shards + greatest(n.pods, 1) - 1) / greatest(n.pods, 1)
      FROM @schema@.control c, (SELECT count(*)::integer AS pods FROM @schema@.relay_pods r WHERE r.expires_at > t) n;
END
$$;
