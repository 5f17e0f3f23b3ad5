-- gate_open() → boolean                                                      internal, @schema@
--
-- The failover gate (protocol section 10), evaluated by every gated function inside its own transaction:
-- claim, acquire, claim_operations, claim_unknown, events_read. Call it first, before any row lock:
--
--     IF NOT @schema@.gate_open() THEN … answer 'gate_closed' … END IF;
--
-- It takes the gate's advisory lock shared, and keeps it to the end of the transaction: a `gate_close` that has
-- returned therefore knows that every claim given out before is committed and visible, and that none follows.
--
-- Open means: nobody closed it, the server is the system and on the timeline that `control` knows, in `strict` mode this
-- very transaction is committed to a synchronous standby, and where claims wait for the relay, it has compared every
-- shard with Kafka since this server started (a server that was set back to an older copy of its data looks like any
-- other; only Kafka remembers more). The timeline is read from the WAL that is being written; the control file lags
-- behind a promotion.
--
-- Locks: gate (shared). Tables: control. Roles: none (called by interface functions).
CREATE OR REPLACE FUNCTION @schema@.gate_open() RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(@schema@.gate_key());
    -- A statement of its own: its snapshot is younger than the lock.
    RETURN @schema@.gate_reason() IS NULL;
END
$$;

-- gate_key() → bigint: the advisory lock of this installation's gate; several may share one database.
CREATE OR REPLACE FUNCTION @schema@.gate_key() RETURNS bigint
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, @schema@, pg_temp
AS $$ SELECT hashtextextended('holdfast gate @schema@', 0) $$;

-- server_timeline() → bigint: the timeline of the WAL that this primary writes; NULL on a standby.
CREATE OR REPLACE FUNCTION @schema@.server_timeline() RETURNS bigint
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
    SELECT CASE WHEN NOT pg_is_in_recovery()
                THEN ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint END
$$;

-- gate_reason() → text: why the gate is closed, NULL when it is open. Takes no lock: alone it only informs.
CREATE OR REPLACE FUNCTION @schema@.gate_reason() RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
    c           @schema@.control%ROWTYPE;
    v_system    bigint;
    v_timeline  bigint := @schema@.server_timeline();
BEGIN
    SELECT * INTO STRICT c FROM @schema@.control;
    SELECT system_identifier INTO v_system FROM pg_control_system();
    RETURN CASE
        WHEN v_timeline IS NULL OR current_setting('transaction_read_only') = 'on' THEN 'not_primary'
        WHEN c.gate_closed THEN coalesce(c.gate_reason, 'closed')
        WHEN v_system <> c.system_identifier THEN 'other_system'
        WHEN v_timeline <> c.timeline THEN 'other_timeline'
        WHEN c.failover_mode = 'strict' AND current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
            THEN 'not_synchronous'
        WHEN c.failover_mode = 'strict' AND btrim(current_setting('synchronous_standby_names')) = ''
            THEN 'no_synchronous_standby'
        WHEN c.claims_wait_for_relay AND c.relay_checked_start IS DISTINCT FROM pg_postmaster_start_time()
            THEN 'relay_unchecked'
    END;
END
$$;
