-- fail_runs(p_t, p_run_ids, p_reasons): the system ends runs: attempts_exhausted, deadline_exceeded. Internal.
-- Called by acquire, claim and sweep. The caller holds the locks of lease and run of each, and has decided that it is
-- not terminal and not validly held.
-- A pending run passes through running, as the state machine says. Locks: operations.
CREATE OR REPLACE FUNCTION @schema@.fail_runs(p_t timestamptz, p_run_ids uuid[], p_reasons text[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    h record;
BEGIN
    IF coalesce(cardinality(p_run_ids), 0) = 0 THEN
        RETURN;
    END IF;
    SELECT array_agg(r.run_id) AS run_ids, array_agg(r.tenant_id) AS tenants, array_agg(r.task_id) AS tasks,
           array_agg('started'::text) AS kinds, array_agg('pending'::text) AS befores, array_agg('running'::text) AS afters,
           array_agg(l.epoch) AS epochs, array_agg(r.revision + 1) AS revisions,
           array_agg(NULL::text) AS owners, array_agg(NULL::uuid) AS commits, array_agg(NULL::jsonb) AS details
    INTO h
    FROM @schema@.agent_runs r JOIN @schema@.worker_leases l ON l.run_id = r.run_id
    WHERE r.run_id = ANY (p_run_ids) AND r.status = 'pending';
    IF h.run_ids IS NOT NULL THEN
        UPDATE @schema@.agent_runs r SET status = 'running', revision = r.revision + 1
        WHERE r.run_id = ANY (h.run_ids);
        PERFORM @schema@.history(p_t, h.run_ids, h.tenants, h.tasks, h.kinds, h.befores, h.afters, h.epochs, h.revisions,
                                 h.owners, h.commits, h.details);
    END IF;

    UPDATE @schema@.agent_runs r
    SET status = 'failed', revision = r.revision + 1, updated_at = p_t,
        wait_mode = NULL, wait_operations = NULL, wait_signal = NULL, wait_until = NULL, woke_reason = NULL
    WHERE r.run_id = ANY (p_run_ids);
    UPDATE @schema@.worker_leases l
    SET owner = NULL, expires_at = p_t, ran_out = false, lapsed_at = NULL, updated_at = p_t
    WHERE l.run_id = ANY (p_run_ids);
    DELETE FROM @schema@.ready y WHERE y.run_id = ANY (p_run_ids);
    DELETE FROM @schema@.timers m WHERE m.run_id = ANY (p_run_ids);
    UPDATE @schema@.run_data d SET failure = @schema@.system_failure(u.reason)
    FROM unnest(p_run_ids, p_reasons) AS u(run_id, reason) WHERE d.run_id = u.run_id;

    PERFORM @schema@.cancel_open(p_t, p_run_ids);

    SELECT array_agg(r.run_id) AS run_ids, array_agg(r.tenant_id) AS tenants, array_agg(r.task_id) AS tasks,
           array_agg('failed'::text) AS kinds, array_agg('running'::text) AS befores, array_agg('failed'::text) AS afters,
           array_agg('run.failed'::text) AS types,
           array_agg(l.epoch) AS epochs, array_agg(r.revision) AS revisions,
           array_agg(NULL::text) AS owners, array_agg(NULL::uuid) AS commits,
           array_agg(jsonb_build_object('reason', u.reason)) AS details,
           array_agg(jsonb_build_object('failure', @schema@.system_failure(u.reason))) AS bodies
    INTO h
    FROM unnest(p_run_ids, p_reasons) AS u(run_id, reason)
    JOIN @schema@.agent_runs r ON r.run_id = u.run_id
    JOIN @schema@.worker_leases l ON l.run_id = u.run_id;
    PERFORM @schema@.history(p_t, h.run_ids, h.tenants, h.tasks, h.kinds, h.befores, h.afters, h.epochs, h.revisions,
                             h.owners, h.commits, h.details);
    PERFORM @schema@.emit(p_t, h.run_ids, h.tenants, h.tasks, h.types, h.epochs, h.revisions, h.bodies);
END $$;

-- The failure of a run that no handler ended, in the form of a handler's.
CREATE OR REPLACE FUNCTION @schema@.system_failure(p_reason text) RETURNS jsonb
LANGUAGE sql IMMUTABLE
RETURN jsonb_build_object('reason', p_reason, 'detail', CASE p_reason
    WHEN 'attempts_exhausted' THEN 'too many acquisitions without a commit'
    WHEN 'deadline_exceeded' THEN 'the deadline had passed before the run ended'
    ELSE p_reason END);

-- endable_runs(p_run_ids) → those whose open operations could all be locked without waiting. For claim and sweep, which
-- never wait for a row; the others are left for the next time.
CREATE OR REPLACE FUNCTION @schema@.endable_runs(p_run_ids uuid[]) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_got text[];
BEGIN
    SELECT array_agg(x.operation_id) INTO v_got
    FROM (SELECT o.operation_id FROM @schema@.tool_operations o
          WHERE o.run_id = ANY (p_run_ids) AND o.status IN ('prepared', 'dispatching', 'unknown')
          ORDER BY o.operation_id FOR NO KEY UPDATE SKIP LOCKED) x;
    RETURN ARRAY(SELECT u.run_id FROM unnest(p_run_ids) AS u(run_id)
                 WHERE NOT EXISTS (SELECT 1 FROM @schema@.tool_operations o
                                   WHERE o.run_id = u.run_id AND o.status IN ('prepared', 'dispatching', 'unknown')
                                     AND NOT o.operation_id = ANY (coalesce(v_got, '{}'))));
END $$;
