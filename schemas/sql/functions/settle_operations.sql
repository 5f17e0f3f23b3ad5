-- settle_operations(p_t, p_operation_ids[], p_verdicts[], p_remote_ids[], p_results[], p_details[]) → run ids that woke
--                                                                                                     internal, @schema@
-- What a fact (converge) or a person (resolve) settles, and all that follows in the same transaction: the event, the end of
-- any claim or query of it, whether it has to be undone, and the wake rule, asked once for each run. p_details: what the
-- event adds (NULL: nothing).
-- The caller holds the locks of the runs and of the operations, and has decided that each is dispatching or unknown.
-- Tables: tool_operations, agent_runs, worker_leases, outbox_events, ready, timers, signals.
CREATE OR REPLACE FUNCTION @schema@.settle_operations(p_t timestamptz, p_operation_ids text[], p_verdicts text[],
    p_remote_ids text[], p_results jsonb[], p_details jsonb[]) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_runs uuid[];
BEGIN
    IF coalesce(cardinality(p_operation_ids), 0) = 0 THEN
        RETURN '{}';
    END IF;
    UPDATE @schema@.tool_operations o
       SET status = i.verdict, remote_id = coalesce(i.remote_id, o.remote_id), result = i.result, dispatch_until = NULL,
           query_owner = NULL, query_since = NULL, query_until = NULL, not_before = NULL,
           revision = o.revision + 1, updated_at = p_t
      FROM unnest(p_operation_ids, p_verdicts, p_remote_ids, p_results) AS i(operation_id, verdict, remote_id, result)
     WHERE o.operation_id = i.operation_id;
    PERFORM @schema@.emit_operations(p_t, p_operation_ids, (
        SELECT array_agg(CASE i.verdict WHEN 'succeeded' THEN 'operation.succeeded' ELSE 'operation.failed' END ORDER BY i.ord)
          FROM unnest(p_verdicts) WITH ORDINALITY AS i(verdict, ord)), p_details);
    SELECT array_agg(DISTINCT o.run_id) INTO v_runs
      FROM @schema@.tool_operations o WHERE o.operation_id = ANY (p_operation_ids);
    RETURN @schema@.wake_runs(v_runs, p_t);
END $$;
