-- lease_check(p_verb, p_owner, p_token, p_ttl_ms): what acquire and claim refuse before they look at a row (22023). Internal.
-- Locks: token (advisory). Tables: control.
CREATE OR REPLACE FUNCTION @schema@.lease_check(p_verb text, p_owner text, p_token uuid, p_ttl_ms bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM @schema@.batch_check(p_verb, '{0}');
    PERFORM @schema@.check_ttl(p_verb, p_ttl_ms, c.max_lease_ttl_ms) FROM @schema@.control c;
    IF coalesce(p_owner, '') = '' OR length(p_owner) > 200 OR p_token IS NULL THEN
        RAISE EXCEPTION '%: an owner of 1 to 200 characters and a token must be given', p_verb USING ERRCODE = '22023';
    END IF;
    -- The calls of one token, one after the other: a repeated one waits for the first and answers what that did.
    PERFORM pg_advisory_xact_lock(hashtextextended('holdfast token @schema@ ' || p_token, 0));
END $$;

-- ordinals(p_n) → {1 … n}
CREATE OR REPLACE FUNCTION @schema@.ordinals(p_n integer) RETURNS integer[]
LANGUAGE sql IMMUTABLE AS $$ SELECT coalesce(array_agg(g), '{}') FROM generate_series(1, p_n) g $$;
