-- backlog(p_limit) → ready                                                        interface; worker, operator, viewer
--
-- How many runs could be claimed now, counted no further than p_limit: what every pod asks every two seconds to see
-- whether it should go on reading. stats() answers the same number among others that cost a scan.
-- Errors: 22023. Locks: none. Tables: ready.
CREATE OR REPLACE FUNCTION @iface@.backlog(p_limit bigint)
RETURNS TABLE (ready bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    IF p_limit IS NULL OR p_limit < 0 THEN
        RAISE EXCEPTION 'backlog: the limit is %', coalesce(p_limit::text, 'NULL') USING ERRCODE = '22023';
    END IF;
    RETURN QUERY SELECT count(*) FROM (SELECT FROM @schema@.ready LIMIT p_limit) r;
END $$;
