-- service_acquire(p_name, p_owner, p_ttl_ms) → outcome, epoch                interface; worker, operator
--
-- Takes the lease of a service that one pod at a time performs: 'sweep', 'shard:<n>'. Same rules as a run's lease:
-- decided by the database's clock after the row lock, the epoch grows with every new term and is never set back.
--
-- Outcomes: acquired (this owner holds it; asked again by the holder: the same epoch, nothing extended),
--           held (another owner holds it; epoch is that owner's).
-- Errors: 22023 for an empty name or owner, a name that is no service, a TTL outside (0, control.max_service_ttl_ms].
-- Locks: service lease. Tables: control, service_leases.
CREATE OR REPLACE FUNCTION @iface@.service_acquire(p_name text, p_owner text, p_ttl_ms bigint)
RETURNS TABLE (outcome text, epoch bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET lock_timeout = '2s'
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_lease @schema@.service_leases%ROWTYPE;
    t       timestamptz;
BEGIN
    PERFORM @schema@.service_check('service_acquire', p_name, p_owner, p_ttl_ms);

    -- The pods that do not hold it ask again and again: as long as it is held nobody needs a lock to be told so.
    SELECT * INTO v_lease FROM @schema@.service_leases s WHERE s.name = p_name;
    IF v_lease.owner <> p_owner AND v_lease.expires_at > clock_timestamp() THEN
        RETURN QUERY SELECT 'held', v_lease.epoch;
        RETURN;
    END IF;

    INSERT INTO @schema@.service_leases (name) VALUES (p_name) ON CONFLICT DO NOTHING;
    PERFORM FROM @schema@.service_leases s WHERE s.name = p_name FOR NO KEY UPDATE;
    t := clock_timestamp();
    SELECT * INTO STRICT v_lease FROM @schema@.service_leases s WHERE s.name = p_name;

    IF v_lease.owner IS NOT NULL AND v_lease.expires_at > t THEN
        RETURN QUERY SELECT CASE WHEN v_lease.owner = p_owner THEN 'acquired' ELSE 'held' END, v_lease.epoch;
        RETURN;
    END IF;
    UPDATE @schema@.service_leases s
       SET owner = p_owner, epoch = s.epoch + 1, expires_at = t + p_ttl_ms * interval '1 millisecond', updated_at = t
     WHERE s.name = p_name;
    RETURN QUERY SELECT 'acquired', v_lease.epoch + 1;
END
$$;
