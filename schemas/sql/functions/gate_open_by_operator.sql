-- gate_open(p_by, p_reason, p_restored, p_nothing_lost) → outcome, reason, epochs_raised, operations_doubted
--                                                                            interface; operator
-- Lets work be claimed again, on the system and the timeline that this server has now: from here on they are the known
-- ones. The old primary must have been fenced before; this function cannot see that.
--
-- A history may have been lost: when history_in_doubt() says so, or p_restored that this is a backup. Then, unless
-- p_nothing_lost states otherwise (kept, with who and why):
--   - the epoch of every run that is not terminal grows by 1,000,000, so that the marks which remotes keep per run stay
--     valid, and whoever holds a lease of either history has lost it;
--   - every operation that is not settled may have been sent once more in the lost history: one more attempt that nobody
--     remembers, with evidence lost_history, and what was prepared becomes unknown (doubt_operations). A claim that is going
--     on may still record its success.
--
-- Outcomes: ok (also when it was open; reason relay_unchecked: as soon as the relay has compared its shards), not_primary,
--           not_allowed (strict mode, and this server is not synchronous: reason).
-- Errors: 22023 without who or why.
-- Locks: gate (exclusive), leases, runs, operations (each in key order).
-- Tables: control, gate_log, worker_leases, agent_runs, tool_operations, operation_evidence, outbox_events.
CREATE OR REPLACE FUNCTION @iface@.gate_open(p_by text, p_reason text, p_restored boolean DEFAULT false,
                                             p_nothing_lost boolean DEFAULT false)
RETURNS TABLE (outcome text, reason text, epochs_raised integer, operations_doubted integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET lock_timeout = '20s'
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    c          @schema@.control%ROWTYPE;
    v_system   bigint;
    v_timeline bigint := @schema@.server_timeline();
    v_lossy    boolean;
    v_reason   text;
    v_raised   integer := 0;
    v_doubted  integer := 0;
BEGIN
    PERFORM @schema@.batch_check('gate_open', '{0}'); -- the isolation level
    IF btrim(coalesce(p_by, '')) = '' OR btrim(coalesce(p_reason, '')) = '' THEN
        RAISE EXCEPTION 'gate_open: who and why must be given' USING ERRCODE = '22023';
    END IF;
    IF v_timeline IS NULL THEN
        RETURN QUERY SELECT 'not_primary', 'this server is a standby', 0, 0;
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(@schema@.gate_key());
    PERFORM @schema@.note_foreign(clock_timestamp());
    SELECT * INTO STRICT c FROM @schema@.control;
    SELECT s.system_identifier INTO v_system FROM pg_control_system() s;
    v_lossy := NOT coalesce(p_nothing_lost, false) AND (coalesce(p_restored, false) OR @schema@.history_in_doubt());

    UPDATE @schema@.control
       SET gate_closed = false, gate_reason = p_reason, gate_changed_by = p_by, gate_changed_at = clock_timestamp(),
           system_identifier = v_system, timeline = v_timeline, set_back = false, foreign_since = NULL;
    v_reason := @schema@.gate_reason();
    IF v_reason <> 'relay_unchecked' THEN
        UPDATE @schema@.control
           SET gate_closed = c.gate_closed, gate_reason = c.gate_reason, gate_changed_by = c.gate_changed_by,
               gate_changed_at = c.gate_changed_at, system_identifier = c.system_identifier, timeline = c.timeline,
               set_back = c.set_back, foreign_since = c.foreign_since;
        RETURN QUERY SELECT 'not_allowed', v_reason, 0, 0;
        RETURN;
    END IF;
    IF v_lossy THEN
        SELECT g.raised, g.doubted INTO v_raised, v_doubted FROM @schema@.gate_settle() g;
    END IF;
    INSERT INTO @schema@.gate_log (act, by_whom, login, reason, detail)
    VALUES ('open', p_by, session_user, p_reason, jsonb_build_object(
        'system_identifier', v_system::text, 'timeline', v_timeline, 'known_system', c.system_identifier::text,
        'known_timeline', c.timeline, 'closed_for', CASE WHEN c.gate_closed THEN c.gate_reason END,
        'restored', p_restored, 'nothing_lost', p_nothing_lost, 'epochs_raised', v_raised,
        'operations_doubted', v_doubted));
    RETURN QUERY SELECT 'ok', v_reason, v_raised, v_doubted;
END
$$;

-- gate_settle(OUT raised, OUT doubted): what opening after a lost history does to runs and operations, see above.
CREATE OR REPLACE FUNCTION @schema@.gate_settle(OUT raised integer, OUT doubted integer)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    t     timestamptz;
    v_ids text[];
BEGIN
    PERFORM FROM @schema@.worker_leases l
      JOIN @schema@.agent_runs r ON r.run_id = l.run_id AND r.status IN ('pending', 'running')
     ORDER BY l.run_id FOR NO KEY UPDATE OF l;
    PERFORM FROM @schema@.agent_runs r
     WHERE r.status IN ('pending', 'running')
        OR r.run_id IN (SELECT o.run_id FROM @schema@.tool_operations o
                         WHERE o.status IN ('prepared', 'dispatching', 'unknown'))
     ORDER BY r.run_id FOR NO KEY UPDATE;
    PERFORM FROM @schema@.tool_operations o
     WHERE o.status IN ('prepared', 'dispatching', 'unknown') ORDER BY o.operation_id FOR NO KEY UPDATE;
    t := clock_timestamp();

    UPDATE @schema@.worker_leases l
       SET epoch = l.epoch + 1000000, updated_at = t
      FROM @schema@.agent_runs r WHERE r.run_id = l.run_id AND r.status IN ('pending', 'running');
    GET DIAGNOSTICS raised = ROW_COUNT;

    SELECT array_agg(o.operation_id ORDER BY o.operation_id) INTO v_ids
      FROM @schema@.tool_operations o WHERE o.status IN ('prepared', 'dispatching', 'unknown');
    PERFORM @schema@.doubt_operations(t, v_ids);
    doubted := coalesce(cardinality(v_ids), 0);
END $$;
