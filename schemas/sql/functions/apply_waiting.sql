-- apply_waiting: cancels and signals that came before their task, applied to the runs just made for it, in the order in
-- which they came: a signal after the first cancel meets a run that has ended. Internal, for submit, which holds the locks
-- of the tasks and of the waiting requests. One whose grace is over is left to the sweep.
-- A new run waits for nothing yet, so a signal wakes nobody: its step context shows it.
-- Tables: requests, signals, and those of cancel_runs.
CREATE OR REPLACE FUNCTION @schema@.apply_waiting(p_t timestamptz, p_tenants text[], p_tasks text[], p_run_ids uuid[])
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    h record;
BEGIN
    SELECT array_agg(d.tenant_id) AS tenants, array_agg(d.request_key) AS keys, array_agg(d.run_id) AS run_ids,
           array_agg(CASE WHEN d.verb = 'signal' THEN CASE WHEN d.cancels = 0 THEN 'delivered' ELSE 'terminal' END
                          WHEN d.cancels = 1 THEN 'cancelled' ELSE 'already_terminal' END) AS outcomes,
           array_agg(d.run_id) FILTER (WHERE d.verb = 'cancel' AND d.cancels = 1) AS cancelled,
           array_agg(d.detail ->> 'reason') FILTER (WHERE d.verb = 'cancel' AND d.cancels = 1) AS reasons,
           array_agg(d.requested_by) FILTER (WHERE d.verb = 'cancel' AND d.cancels = 1) AS bys
    INTO h
    FROM (SELECT q.tenant_id, q.request_key, q.verb, q.detail, q.requested_by, u.run_id,
                 count(*) FILTER (WHERE q.verb = 'cancel')
                     OVER (PARTITION BY u.run_id ORDER BY q.created_at, q.request_key) AS cancels -- up to this one
          FROM unnest(p_tenants, p_tasks, p_run_ids) AS u(tenant_id, task_id, run_id)
          JOIN @schema@.requests q ON q.tenant_id = u.tenant_id AND q.task_id = u.task_id AND q.outcome = 'waiting'
          WHERE q.verb IN ('cancel', 'signal') AND q.waiting_until > p_t) d;
    IF h.keys IS NULL THEN
        RETURN;
    END IF;
    PERFORM @schema@.cancel_runs(p_t, h.cancelled, h.reasons, h.bys);
    INSERT INTO @schema@.signals (tenant_id, task_id, signal_id, name, payload, created_at)
    SELECT q.tenant_id, q.task_id, q.detail ->> 'signal_id', q.detail ->> 'name', q.payload, q.created_at
    FROM unnest(h.tenants, h.keys, h.outcomes) AS u(tenant_id, request_key, outcome)
    JOIN @schema@.requests q ON q.tenant_id = u.tenant_id AND q.request_key = u.request_key
    WHERE u.outcome = 'delivered'
    ORDER BY q.tenant_id, q.task_id, q.detail ->> 'signal_id'
    ON CONFLICT DO NOTHING;
    UPDATE @schema@.requests q
    SET outcome = u.outcome, run_id = u.run_id, record = NULL, payload = NULL, waiting_until = NULL
    FROM unnest(h.tenants, h.keys, h.outcomes, h.run_ids) AS u(tenant_id, request_key, outcome, run_id)
    WHERE q.tenant_id = u.tenant_id AND q.request_key = u.request_key;
END $$;
