-- A TTL that is absent, not positive or above the installation's ceiling is a bug of the caller (22023).
CREATE OR REPLACE FUNCTION @schema@.check_ttl(p_verb text, p_ttl_ms bigint, p_max_ms bigint) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF p_ttl_ms IS NULL OR p_ttl_ms <= 0 OR p_ttl_ms > p_max_ms THEN
        RAISE EXCEPTION '%: ttl of % ms, allowed are 1 to % ms', p_verb, coalesce(p_ttl_ms::text, 'NULL'), p_max_ms
            USING ERRCODE = '22023';
    END IF;
END $$;
