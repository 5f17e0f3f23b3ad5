-- gate_close(p_by, p_reason, p_set_back) → outcome, sendable_until                     interface; worker, operator
--
-- Closes the gate: when it has answered, every claim given out before is committed, and none follows. A relay that sees
-- that Kafka remembers more than this database closes it, so it is the worker's, too; opening is not.
-- sendable_until: until when claims already given out can still send, those of a lost history too (NULL: there are none).
-- A closed gate keeps the reason it was first closed for; the log keeps every call. p_set_back: Kafka remembers more than
-- this database, which is therefore a restored one, or a lost branch: what it calls not sent may have been sent, until the
-- gate is opened (history_in_doubt).
--
-- Outcomes: ok. Errors: 22023 without who or why. Locks: gate (exclusive). Tables: control, gate_log, tool_operations.
CREATE OR REPLACE FUNCTION @iface@.gate_close(p_by text, p_reason text, p_set_back boolean DEFAULT false)
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
    IF coalesce(p_set_back, false) THEN
        UPDATE @schema@.control c SET set_back = true WHERE NOT c.set_back;
    END IF;
    PERFORM @schema@.note_foreign(clock_timestamp());
    INSERT INTO @schema@.gate_log (act, by_whom, login, reason, detail)
    VALUES ('close', p_by, session_user, p_reason, jsonb_build_object('set_back', coalesce(p_set_back, false)));
    RETURN QUERY SELECT 'ok', @schema@.sendable_until(clock_timestamp());
END
$$;
