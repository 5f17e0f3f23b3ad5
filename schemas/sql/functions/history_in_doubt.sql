-- history_in_doubt() → boolean                                              internal, @schema@
--
-- Whether a history may have been lost that nobody has looked at yet: this server is not on the timeline that `control`
-- knows (async mode; a synchronous standby has everything), or is another system (a restored dump), or was found to be set
-- back (`gate_close` with the relay's word for it). From then until the gate is opened, what this ledger calls prepared or
-- unsent may have been sent all the same: whoever would treat it as not sent asks here, after the operation's lock, and
-- uses doubt_operations() instead.
--
-- Locks: none: opening changes `control` and doubts in one transaction, and whoever holds the operation's lock is either
-- before that, and sees the old identity, or after it, and sees the doubt. Tables: control.
CREATE OR REPLACE FUNCTION @schema@.history_in_doubt() RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
BEGIN
    RETURN (SELECT s.system_identifier <> c.system_identifier
                   OR (c.failover_mode = 'async' AND @schema@.server_timeline() <> c.timeline)
                   OR (c.gate_closed AND c.set_back)
              FROM @schema@.control c, pg_control_system() s);
END
$$;

-- doubt_operations(p_t, p_operation_ids[]): a lost history may have made one more attempt of each of them than this ledger
-- knows. Counted, with evidence lost_history and, where there was no doubt before, the event. What is prepared becomes
-- unknown. A claim that is going on stays, and its own success still counts; so does a refusal for the claim alone.
-- The retention of a key counts from the registration, for the lost attempt may be as old as that.
-- The caller holds the locks of their runs and of the operations, and has decided that none is settled.
-- Tables: tool_operations, worker_leases, operation_evidence, outbox_events.
CREATE OR REPLACE FUNCTION @schema@.doubt_operations(p_t timestamptz, p_operation_ids text[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_ids  text[];
    v_told text[];
BEGIN
    IF coalesce(cardinality(p_operation_ids), 0) = 0 THEN
        RETURN;
    END IF;
    -- Those that are in doubt now and were not before: to be published.
    SELECT array_agg(o.operation_id ORDER BY o.operation_id) INTO v_told FROM @schema@.tool_operations o
     WHERE o.operation_id = ANY (p_operation_ids)
       AND (o.status = 'prepared' OR (o.status = 'unknown' AND o.attempts = o.attempts_not_sent));
    WITH doubt AS (
        UPDATE @schema@.tool_operations o
           SET status = CASE o.status WHEN 'dispatching' THEN 'dispatching' ELSE 'unknown' END,
               attempts = o.attempts + 1, updated_at = p_t,
               -- The revision is a claim's own while it goes on; what it will record raises it.
               revision = o.revision + (o.status <> 'dispatching')::integer,
               first_sent_at = o.created_at,
               escalate_at = coalesce(o.escalate_at, o.created_at + @schema@.declared(o.declaration, 'escalate_after_ms')::float8
                                                                    * interval '1 millisecond'),
               not_before = CASE WHEN o.status <> 'dispatching'
                                 THEN @schema@.due_again(o.capability, o.declaration, o.created_at, o.retention_ms, p_t,
                                                         @schema@.back_off_ms(o.attempts + 1)) END
         WHERE o.operation_id = ANY (p_operation_ids)
        RETURNING o.operation_id, o.run_id, o.attempts
    )
    INSERT INTO @schema@.operation_evidence (at, operation_id, attempt, epoch, kind, detail)
    SELECT p_t, d.operation_id, d.attempts, l.epoch, 'lost_history', '{}'
      FROM doubt d LEFT JOIN @schema@.worker_leases l ON l.run_id = d.run_id
     ORDER BY d.operation_id;
    IF v_told IS NOT NULL THEN
        PERFORM @schema@.emit_operations(p_t, v_told, array_fill('operation.unknown'::text, ARRAY[cardinality(v_told)]),
                                         array_fill('{"why": "lost_history"}'::jsonb, ARRAY[cardinality(v_told)]));
    END IF;
END $$;

-- note_foreign(p_t): keeps when it was first noticed that this server is on another history than the known one, and until
-- when the claims that were lost with that can still send. By whoever writes first: gate_close, sweep, gate_open.
CREATE OR REPLACE FUNCTION @schema@.note_foreign(p_t timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE @schema@.control c
       SET foreign_since = p_t, lost_claims_until = p_t + c.max_claim_ttl_ms * interval '1 millisecond'
      FROM pg_control_system() s
     WHERE c.foreign_since IS NULL
       AND (c.set_back OR (s.system_identifier, @schema@.server_timeline()) IS DISTINCT FROM (c.system_identifier, c.timeline));
END $$;

-- sendable_until(p_t) → until when claims already given out can still send: those of this history, and those of a lost one.
CREATE OR REPLACE FUNCTION @schema@.sendable_until(p_t timestamptz) RETURNS timestamptz
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT greatest((SELECT max(o.dispatch_until) FROM @schema@.tool_operations o WHERE o.status = 'dispatching'),
                            CASE WHEN c.lost_claims_until > p_t THEN c.lost_claims_until
                                 WHEN c.foreign_since IS NULL AND (s.system_identifier, @schema@.server_timeline())
                                      IS DISTINCT FROM (c.system_identifier, c.timeline)
                                 THEN p_t + c.max_claim_ttl_ms * interval '1 millisecond' END)
              FROM @schema@.control c, pg_control_system() s);
END $$;
