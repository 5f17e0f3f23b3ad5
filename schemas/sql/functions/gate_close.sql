-- gate_close(p_by, p_reason) → outcome, sendable_until                       interface; worker, operator
--
-- Closes the gate: when it has answered, every claim given out before is committed, and none follows. A relay that sees
-- that Kafka remembers more than this database closes it, so it is the worker's, too; opening is not.
-- sendable_until: until when claims already given out can still send (NULL: there are none). A closed gate keeps the
-- reason it was first closed for; the log keeps every call.
--
-- Outcomes: ok. Errors: 22023 without who or why. Locks: gate (exclusive). Tables: control, gate_log, tool_operations.
CREATE OR REPLACE FUNCTION @iface@.gate_close(p_by text, p_reason text)
RETURNS TABLE (outcome text, sendable_until timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET lock_timeout = '20s'
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    PERFORM @schema@.batch_check('gate_close', '{0}'); -- the isolation level
    IF btrim(coalesce(p_by, '')) = '' OR btrim(coalesce(p_reason, '')) = '' THEN
        RAISE EXCEPTION 'gate_close: who and why must be given' USING ERRCODE = '22023';
    END IF;
    PERFORM pg_advisory_xact_lock(@schema@.gate_key());
    UPDATE @schema@.control c
       SET gate_closed = true, gate_reason = p_reason, gate_changed_by = p_by, gate_changed_at = clock_timestamp()
     WHERE NOT c.gate_closed;
    INSERT INTO @schema@.gate_log (act, by_whom, login, reason, detail)
    VALUES ('close', p_by, session_user, p_reason, '{}');
    RETURN QUERY SELECT 'ok', (SELECT max(o.dispatch_until) FROM @schema@.tool_operations o
                                WHERE o.status = 'dispatching');
END
$$;
