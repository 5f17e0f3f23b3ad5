-- service_check(p_verb, p_name, p_owner, p_ttl_ms)                           internal, @schema@
--
-- Refuses (22023) names that are no service of this installation, an empty owner, a TTL outside the ceiling (verbs
-- without a TTL give 1). service_holds() is the check of a holder.
-- Locks: none. Tables: control.
CREATE OR REPLACE FUNCTION @schema@.service_check(p_verb text, p_name text, p_owner text, p_ttl_ms bigint) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
    c @schema@.control%ROWTYPE;
BEGIN
    SELECT * INTO STRICT c FROM @schema@.control;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION '%: isolation must be read committed', p_verb USING ERRCODE = '25001';
    END IF;
    IF NOT coalesce(p_name = 'sweep' OR (p_name ~ '^shard:(0|[1-9][0-9]{0,2})$'
                                         AND substr(p_name, 7)::integer < c.shards), false) THEN
        RAISE EXCEPTION '%: % is no service of this installation', p_verb, quote_nullable(p_name)
            USING ERRCODE = '22023';
    END IF;
    IF coalesce(p_owner, '') = '' OR length(p_owner) > 200 THEN
        RAISE EXCEPTION '%: an owner of 1 to 200 characters must be given', p_verb USING ERRCODE = '22023';
    END IF;
    IF coalesce(p_ttl_ms, 0) NOT BETWEEN 1 AND c.max_service_ttl_ms THEN
        RAISE EXCEPTION '%: a TTL of % ms is outside 1 … %', p_verb, p_ttl_ms, c.max_service_ttl_ms
            USING ERRCODE = '22023';
    END IF;
END
$$;

-- service_holds(p_name, p_owner, p_epoch) → boolean: locks the service's row to the end of the transaction, so that a
-- successor waits for it, and tells whether that owner holds it in that epoch at this moment.
-- Locks: service lease. Tables: service_leases.
CREATE OR REPLACE FUNCTION @schema@.service_holds(p_name text, p_owner text, p_epoch bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
    t timestamptz;
BEGIN
    PERFORM FROM @schema@.service_leases s WHERE s.name = p_name FOR NO KEY UPDATE;
    t := clock_timestamp();
    RETURN EXISTS (SELECT FROM @schema@.service_leases s
                    WHERE s.name = p_name AND s.owner = p_owner AND s.epoch = p_epoch AND s.expires_at > t);
END
$$;
