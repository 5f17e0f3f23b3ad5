-- The one wake rule. Which of these parked runs have what they wait for? They become ready, and the reason is kept until
-- their next commit, so that whoever acquires them, however often, sees the same reason.
-- What a caller must hold: the lock of each run. p_t: the caller's one clock reading, made after its last lock.
-- Returns the run ids it woke (only these deserve a hint). A run that is not parked, or woke already, is left alone.
--   operations  all / any of the named ones are settled
--   signal      one of that name has come for the task (or this run) and nobody has consumed it
--   timeout     wait_until was reached        deadline  the run's deadline was reached
CREATE OR REPLACE FUNCTION @schema@.wake_runs(p_run_ids uuid[], p_t timestamptz) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_ids     uuid[];
    v_reasons text[];
BEGIN
    IF coalesce(cardinality(p_run_ids), 0) = 0 THEN
        RETURN '{}';
    END IF;

    SELECT array_agg(d.run_id ORDER BY d.run_id), array_agg(d.reason ORDER BY d.run_id)
    INTO v_ids, v_reasons
    FROM (SELECT r.run_id, CASE
              WHEN r.wait_mode = 'all' AND cardinality(r.wait_operations) > 0 AND NOT EXISTS (
                  SELECT 1 FROM unnest(r.wait_operations) AS w(operation_id)
                  LEFT JOIN @schema@.tool_operations o ON o.operation_id = w.operation_id
                  WHERE coalesce(o.status, 'prepared') IN ('prepared', 'dispatching', 'unknown')) THEN 'operations'
              WHEN r.wait_mode = 'any' AND EXISTS (
                  SELECT 1 FROM unnest(r.wait_operations) AS w(operation_id)
                  JOIN @schema@.tool_operations o ON o.operation_id = w.operation_id
                  WHERE o.status IN ('succeeded', 'failed_final', 'cancelled')) THEN 'operations'
              WHEN r.wait_signal IS NOT NULL AND EXISTS (
                  SELECT 1 FROM @schema@.signals s
                  WHERE s.tenant_id = r.tenant_id AND s.task_id = r.task_id AND s.name = r.wait_signal
                    AND s.consumed_by IS NULL AND coalesce(s.run_id, r.run_id) = r.run_id) THEN 'signal'
              WHEN r.wait_until <= p_t THEN 'timeout'
              WHEN r.deadline <= p_t THEN 'deadline'
          END AS reason
          FROM @schema@.agent_runs r
          WHERE r.run_id = ANY (p_run_ids) AND r.status IN ('pending', 'running')
            AND r.wait_mode IS NOT NULL AND r.woke_reason IS NULL
          OFFSET 0) d
    WHERE d.reason IS NOT NULL;

    IF v_ids IS NULL THEN
        RETURN '{}';
    END IF;
    UPDATE @schema@.agent_runs r SET woke_reason = u.reason, updated_at = p_t
    FROM unnest(v_ids, v_reasons) AS u(run_id, reason) WHERE r.run_id = u.run_id;
    INSERT INTO @schema@.ready (run_id, handler, priority, since)
    SELECT r.run_id, r.handler, r.priority, p_t FROM @schema@.agent_runs r WHERE r.run_id = ANY (v_ids) ORDER BY r.run_id
    ON CONFLICT (run_id) DO NOTHING;
    DELETE FROM @schema@.timers m WHERE m.run_id = ANY (v_ids);
    RETURN v_ids;
END $$;
