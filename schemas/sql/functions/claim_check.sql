-- claim_check(p_verb, p_owner, p_token, p_limit, p_ttl_ms, p_operation_ids)  internal, @schema@
--
-- Refuses (22023) a claim without owner or token, with a limit or a TTL outside the ceilings, or naming one operation
-- twice; then serialises the calls of one token for the rest of the transaction: a repeated call waits for the first
-- one, even if that one claims nothing, and so answers what the first one did.
-- Locks: token (advisory). Tables: control.
CREATE OR REPLACE FUNCTION @schema@.claim_check(p_verb text, p_owner text, p_token uuid, p_limit integer,
                                                p_ttl_ms bigint, p_operation_ids text[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
    c @schema@.control%ROWTYPE;
BEGIN
    SELECT * INTO STRICT c FROM @schema@.control;
    PERFORM @schema@.batch_check(p_verb, ARRAY[coalesce(cardinality(p_operation_ids), p_limit)]);
    IF coalesce(p_owner, '') = '' OR length(p_owner) > 200 OR p_token IS NULL THEN
        RAISE EXCEPTION '%: an owner of 1 to 200 characters and a token must be given', p_verb
            USING ERRCODE = '22023';
    END IF;
    IF p_operation_ids IS NULL AND p_limit < 1 THEN
        RAISE EXCEPTION '%: a limit of % is below 1', p_verb, p_limit USING ERRCODE = '22023';
    END IF;
    IF coalesce(p_ttl_ms, 0) NOT BETWEEN 1 AND c.max_claim_ttl_ms THEN
        RAISE EXCEPTION '%: a TTL of % ms is outside 1 … %', p_verb, p_ttl_ms, c.max_claim_ttl_ms
            USING ERRCODE = '22023';
    END IF;
    IF (SELECT count(*) <> count(DISTINCT u.id) + count(*) FILTER (WHERE u.id IS NULL)
          FROM unnest(p_operation_ids) u (id)) THEN
        RAISE EXCEPTION '%: an operation is named twice', p_verb USING ERRCODE = '22023';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('holdfast token @schema@ ' || p_token, 0));
END
$$;
