-- service_renew(p_name, p_owner, p_epoch, p_ttl_ms) → outcome, epoch         interface; worker, operator
--
-- Extends a service lease from the database's clock on; never revives one that has run out.
-- Outcomes: renewed, lost (it ran out, was given back, or belongs to a later term; epoch is the current one, NULL if
--           that service was never held).
-- Errors: 22023 as service_acquire. Locks: service lease. Tables: control, service_leases.
CREATE OR REPLACE FUNCTION @iface@.service_renew(p_name text, p_owner text, p_epoch bigint, p_ttl_ms bigint)
RETURNS TABLE (outcome text, epoch bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET lock_timeout = '2s'
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_holds boolean;
BEGIN
    PERFORM @schema@.service_check('service_renew', p_name, p_owner, p_ttl_ms);
    v_holds := @schema@.service_holds(p_name, p_owner, p_epoch);
    IF v_holds THEN
        UPDATE @schema@.service_leases s
           SET expires_at = clock_timestamp() + p_ttl_ms * interval '1 millisecond', updated_at = clock_timestamp()
         WHERE s.name = p_name;
    END IF;
    RETURN QUERY SELECT CASE WHEN v_holds THEN 'renewed' ELSE 'lost' END,
                        (SELECT s.epoch FROM @schema@.service_leases s WHERE s.name = p_name);
END
$$;
