-- service_release(p_name, p_owner, p_epoch) → outcome, epoch                 interface; worker, operator
--
-- Gives a service lease back; the epoch stays, so that the next term has a higher one. Never disturbs a successor.
-- Outcomes: released, not_holder. Errors: 22023 as service_acquire.
-- Locks: service lease. Tables: control, service_leases.
CREATE OR REPLACE FUNCTION @iface@.service_release(p_name text, p_owner text, p_epoch bigint)
RETURNS TABLE (outcome text, epoch bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET lock_timeout = '2s'
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_mine boolean;
BEGIN
    PERFORM @schema@.service_check('service_release', p_name, p_owner, 1);
    PERFORM FROM @schema@.service_leases s WHERE s.name = p_name FOR NO KEY UPDATE;
    v_mine := EXISTS (SELECT FROM @schema@.service_leases s
                       WHERE s.name = p_name AND s.owner = p_owner AND s.epoch = p_epoch);
    IF v_mine THEN
        UPDATE @schema@.service_leases s
           SET owner = NULL, expires_at = clock_timestamp(), updated_at = clock_timestamp()
         WHERE s.name = p_name;
    END IF;
    RETURN QUERY SELECT CASE WHEN v_mine THEN 'released' ELSE 'not_holder' END,
                        (SELECT s.epoch FROM @schema@.service_leases s WHERE s.name = p_name);
END
$$;
