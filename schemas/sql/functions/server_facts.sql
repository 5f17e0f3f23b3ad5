-- server_facts() → one row                                                   interface; worker, operator, viewer
--
-- What a pod checks at start and `doctor` explains: which server this is, whether it keeps what it acknowledges, the
-- installation's version and ceilings, and what the login role may do that it should not, or lacks. Works on a standby.
-- Locks: none. Tables: control.
CREATE OR REPLACE FUNCTION @iface@.server_facts()
RETURNS TABLE (
    in_recovery boolean, read_only boolean, system_identifier bigint, timeline bigint, lsn bigint, clock timestamptz,
    version_num integer, fsync boolean, full_page_writes boolean, synchronous_commit text,
    synchronous_standby_names text, wal_level text, max_connections integer, client_connection_check_interval_ms bigint,
    schema_version integer, oldest_interface integer, failover_mode text, shards integer, max_batch integer,
    max_lease_ttl_ms bigint, max_claim_ttl_ms bigint, max_service_ttl_ms bigint, max_body_bytes integer,
    max_event_bytes integer, gate_open boolean, gate_reason text,
    login text, login_superuser boolean, login_can_make_temp boolean, login_worker boolean, login_operator boolean,
    login_viewer boolean, login_connection_limit integer, lock_timeout_ms bigint, statement_timeout_ms bigint,
    idle_in_transaction_timeout_ms bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_standby boolean := pg_is_in_recovery();
    v_reason  text := @schema@.gate_reason();
BEGIN
    RETURN QUERY
    SELECT v_standby, current_setting('transaction_read_only')::boolean, s.system_identifier,
           coalesce(@schema@.server_timeline(), k.timeline_id::bigint),
           (CASE WHEN v_standby THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END - '0/0'::pg_lsn)::bigint,
           clock_timestamp(), current_setting('server_version_num')::integer, current_setting('fsync')::boolean,
           current_setting('full_page_writes')::boolean, current_setting('synchronous_commit'),
           current_setting('synchronous_standby_names'), current_setting('wal_level'),
           current_setting('max_connections')::integer,
           (SELECT g.setting::bigint FROM pg_settings g WHERE g.name = 'client_connection_check_interval'),
           c.schema_version, c.oldest_interface, c.failover_mode, c.shards, c.max_batch, c.max_lease_ttl_ms,
           c.max_claim_ttl_ms, c.max_service_ttl_ms, c.max_body_bytes, c.max_event_bytes, v_reason IS NULL, v_reason,
           session_user::text, u.rolsuper,
           has_database_privilege(session_user, current_database(), 'TEMPORARY'),
           pg_has_role(session_user, '@role@worker', 'USAGE'), pg_has_role(session_user, '@role@operator', 'USAGE'),
           pg_has_role(session_user, '@role@viewer', 'USAGE'), u.rolconnlimit,
           (SELECT g.setting::bigint FROM pg_settings g WHERE g.name = 'lock_timeout'),
           (SELECT g.setting::bigint FROM pg_settings g WHERE g.name = 'statement_timeout'),
           (SELECT g.setting::bigint FROM pg_settings g WHERE g.name = 'idle_in_transaction_session_timeout')
      FROM @schema@.control c, pg_control_system() s, pg_control_checkpoint() k, pg_roles u
     WHERE u.rolname = session_user;
END
$$;
