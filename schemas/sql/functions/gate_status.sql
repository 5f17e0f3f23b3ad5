-- gate_status() → one row                                                    interface; worker, operator, viewer
--
-- Whether work may be claimed and events be read for publishing, and why not: not_primary, other_system,
-- other_timeline, not_synchronous, no_synchronous_standby, relay_unchecked, or the reason that somebody gave. Informs
-- only, takes no lock; each gated function looks itself. sendable_until: until when claims already given out can still
-- send; claims that a promotion lost are known by nobody here, and can for the largest term of a claim from when it was
-- noticed.
-- Tables: control, tool_operations.
CREATE OR REPLACE FUNCTION @iface@.gate_status()
RETURNS TABLE (open boolean, reason text, system_identifier bigint, timeline bigint, known_system bigint,
               known_timeline bigint, mode text, changed_at timestamptz, changed_by text, sendable_until timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_reason text := @schema@.gate_reason();
BEGIN
    RETURN QUERY
    SELECT v_reason IS NULL, v_reason, s.system_identifier,
           coalesce(@schema@.server_timeline(), (SELECT k.timeline_id::bigint FROM pg_control_checkpoint() k)),
           c.system_identifier, c.timeline, c.failover_mode, c.gate_changed_at, c.gate_changed_by,
           @schema@.sendable_until(clock_timestamp())
      FROM @schema@.control c, pg_control_system() s;
END
$$;
