-- apply_waiting: cancels that came before their task, applied to the runs just made for it. Internal, for submit, which
-- holds the locks of the tasks and of the waiting requests. One whose grace is over is left to the sweep.
-- Tables: requests, and those of cancel_runs.
CREATE OR REPLACE FUNCTION @schema@.apply_waiting(p_t timestamptz, p_tenants text[], p_tasks text[], p_run_ids uuid[])
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    h record;
BEGIN
    SELECT array_agg(d.tenant_id) AS tenants, array_agg(d.request_key) AS keys, array_agg(d.run_id) AS run_ids,
           array_agg(CASE WHEN d.nth = 1 THEN 'cancelled' ELSE 'already_terminal' END) AS outcomes,
           array_agg(d.run_id) FILTER (WHERE d.nth = 1) AS cancelled,
           array_agg(d.detail ->> 'reason') FILTER (WHERE d.nth = 1) AS reasons,
           array_agg(d.requested_by) FILTER (WHERE d.nth = 1) AS bys
    INTO h
    FROM (SELECT q.tenant_id, q.request_key, q.detail, q.requested_by, u.run_id,
                 row_number() OVER (PARTITION BY u.run_id ORDER BY q.created_at, q.request_key) AS nth
          FROM unnest(p_tenants, p_tasks, p_run_ids) AS u(tenant_id, task_id, run_id)
          JOIN @schema@.requests q ON q.tenant_id = u.tenant_id AND q.task_id = u.task_id AND q.outcome = 'waiting'
          WHERE q.verb = 'cancel' AND q.waiting_until > p_t) d;
    IF h.keys IS NULL THEN
        RETURN;
    END IF;
    PERFORM @schema@.cancel_runs(p_t, h.cancelled, h.reasons, h.bys);
    UPDATE @schema@.requests q
    SET outcome = u.outcome, run_id = u.run_id, record = NULL, waiting_until = NULL
    FROM unnest(h.tenants, h.keys, h.outcomes, h.run_ids) AS u(tenant_id, request_key, outcome, run_id)
    WHERE q.tenant_id = u.tenant_id AND q.request_key = u.request_key;
END $$;
