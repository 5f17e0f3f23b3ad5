-- cancel_operations(p_t, p_operation_ids): these become `cancelled`, with their event; while a history may have been lost
-- (history_in_doubt) that one may have sent them, and they become `unknown` instead. Internal.
-- The caller holds the locks of their runs and of the operations, and has decided that each is prepared or unsent.
CREATE OR REPLACE FUNCTION @schema@.cancel_operations(p_t timestamptz, p_operation_ids text[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_n integer[] := ARRAY[cardinality(p_operation_ids)];
BEGIN
    IF coalesce(cardinality(p_operation_ids), 0) = 0 THEN
        RETURN;
    END IF;
    IF @schema@.history_in_doubt() THEN
        PERFORM @schema@.doubt_operations(p_t, p_operation_ids);
        RETURN;
    END IF;
    UPDATE @schema@.tool_operations o
    SET status = 'cancelled', revision = o.revision + 1, updated_at = p_t
    WHERE o.operation_id = ANY (p_operation_ids);

    PERFORM @schema@.emit_operations(p_t, p_operation_ids, array_fill('operation.cancelled'::text, v_n),
                                     array_fill(NULL::jsonb, v_n));
END $$;

-- cancel_open(p_t, p_run_ids): the prepared and unsent operations of runs that just ended; others keep their state.
-- A statement later than the one that locked the runs: an intent registered meanwhile is seen (hole 3).
-- The caller holds the runs' locks. Locks: operations.
CREATE OR REPLACE FUNCTION @schema@.cancel_open(p_t timestamptz, p_run_ids uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_ids text[];
BEGIN
    PERFORM 1 FROM @schema@.tool_operations o
    WHERE o.run_id = ANY (p_run_ids) AND o.status IN ('prepared', 'dispatching', 'unknown')
    ORDER BY o.operation_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT array_agg(o.operation_id) INTO v_ids FROM @schema@.tool_operations o
    WHERE o.run_id = ANY (p_run_ids)
      AND (o.status = 'prepared' OR (o.status = 'unknown' AND o.attempts = o.attempts_not_sent));
    PERFORM @schema@.cancel_operations(p_t, v_ids);
END $$;
