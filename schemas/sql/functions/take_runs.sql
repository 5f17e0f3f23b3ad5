-- take_runs: what acquire and claim have in common: decide, then write. Internal.
-- The caller holds the locks of lease and run of everything in p_run_ids that exists (claim drops what it did not get),
-- and read p_t after the last of them. Order of the answer: that of p_run_ids.
-- p_skip: the caller may not wait for a row; a run that would end is left alone (busy) when somebody works on one of its
-- operations.
-- Outcomes: acquired, busy, missing, terminal, not_ready, attempts_exhausted, deadline_exceeded. The last two end the run.
-- Locks: operations (of runs that end).
CREATE OR REPLACE FUNCTION @schema@.take_runs(p_t timestamptz, p_owner text, p_token uuid, p_run_ids uuid[],
    p_ttl_ms bigint, p_handlers text[], p_skip boolean,
    OUT o_outcomes text[], OUT o_takeovers boolean[], OUT o_takeover_ms bigint[], OUT o_started boolean[])
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_take    uuid[];
    v_fail    uuid[];
    v_free    uuid[];
    v_reasons text[];
    e         record;
    v_until   timestamptz := p_t + p_ttl_ms * interval '1 millisecond';
BEGIN
    SELECT array_agg(d.outcome),
           array_agg(d.outcome = 'acquired' AND d.lapsed_at IS NOT NULL),
           array_agg((extract(epoch FROM p_t - d.lapsed_at) * 1000)::bigint),
           array_agg(d.outcome = 'acquired' AND d.status = 'pending'),
           array_agg(d.run_id) FILTER (WHERE d.outcome = 'acquired'),
           array_agg(d.run_id) FILTER (WHERE d.outcome IN ('attempts_exhausted', 'deadline_exceeded')),
           array_agg(d.outcome) FILTER (WHERE d.outcome IN ('attempts_exhausted', 'deadline_exceeded'))
    INTO o_outcomes, o_takeovers, o_takeover_ms, o_started, v_take, v_fail, v_reasons
    FROM (SELECT i.ord, i.run_id, r.status,
                 CASE WHEN l.ran_out THEN l.lapsed_at WHEN l.owner IS NOT NULL THEN l.expires_at END AS lapsed_at,
                 CASE WHEN r.run_id IS NULL OR l.run_id IS NULL THEN 'missing'
                      WHEN r.status NOT IN ('pending', 'running') THEN 'terminal'
                      WHEN NOT coalesce(r.handler = ANY (p_handlers), p_handlers IS NULL) THEN 'not_ready'
                      WHEN l.owner IS NOT NULL AND l.expires_at > p_t THEN 'busy'
                      WHEN l.owner IS NULL AND y.run_id IS NULL THEN 'not_ready'
                      WHEN r.deadline <= p_t THEN 'deadline_exceeded'
                      WHEN r.attempts >= r.max_attempts THEN 'attempts_exhausted'
                      ELSE 'acquired' END AS outcome
          FROM unnest(p_run_ids) WITH ORDINALITY AS i(run_id, ord)
          LEFT JOIN @schema@.worker_leases l ON l.run_id = i.run_id
          LEFT JOIN @schema@.agent_runs r ON r.run_id = i.run_id
          LEFT JOIN @schema@.ready y ON y.run_id = i.run_id
          ORDER BY i.ord OFFSET 0) d;

    IF p_skip AND v_fail IS NOT NULL THEN
        v_free := @schema@.endable_runs(v_fail);
        SELECT array_agg(CASE WHEN o.outcome IN ('attempts_exhausted', 'deadline_exceeded')
                                   AND NOT p_run_ids[o.ord] = ANY (v_free) THEN 'busy' ELSE o.outcome END ORDER BY o.ord)
        INTO o_outcomes FROM unnest(o_outcomes) WITH ORDINALITY AS o(outcome, ord);
        SELECT array_agg(u.run_id), array_agg(u.reason) INTO v_fail, v_reasons
        FROM unnest(v_fail, v_reasons) AS u(run_id, reason) WHERE u.run_id = ANY (v_free);
    END IF;
    PERFORM @schema@.fail_runs(p_t, v_fail, v_reasons);
    IF v_take IS NULL THEN
        PERFORM @schema@.keep_empty_token(p_t, p_owner, p_token, v_fail IS NULL);
        RETURN;
    END IF;

    -- Before the leases are written: what the previous term left behind.
    SELECT array_agg(u.run_id) AS run_ids, array_agg(u.tenant_id) AS tenants, array_agg(u.task_id) AS tasks,
           array_agg(u.kind) AS kinds, array_agg(u.status) AS befores, array_agg('running'::text) AS afters,
           array_agg('run.' || u.kind) AS types, array_agg(u.epoch + 1) AS epochs, array_agg(u.revision) AS revisions,
           array_agg(p_owner) AS owners, array_agg(NULL::uuid) AS commits,
           array_agg(CASE WHEN u.kind = 'taken_over' THEN jsonb_strip_nulls(jsonb_build_object(
               'from_epoch', u.epoch, 'from_owner', u.owner,
               'after_ms', (extract(epoch FROM p_t - u.lapsed_at) * 1000)::bigint)) END) AS details,
           array_agg(CASE WHEN u.kind = 'taken_over' THEN jsonb_build_object('takeover', jsonb_build_object(
               'from_epoch', u.epoch, 'after_ms', (extract(epoch FROM p_t - u.lapsed_at) * 1000)::bigint))
               ELSE '{}' END) AS bodies
    INTO e
    FROM (SELECT r.run_id, r.tenant_id, r.task_id, r.status, l.epoch, l.owner,
                 r.revision + (r.status = 'pending')::integer AS revision,
                 CASE WHEN r.status = 'pending' THEN 'started' ELSE 'taken_over' END AS kind,
                 CASE WHEN l.ran_out THEN l.lapsed_at ELSE l.expires_at END AS lapsed_at
          FROM @schema@.agent_runs r JOIN @schema@.worker_leases l ON l.run_id = r.run_id
          WHERE r.run_id = ANY (v_take) AND (r.status = 'pending' OR l.ran_out OR l.owner IS NOT NULL)
          OFFSET 0) u;

    UPDATE @schema@.worker_leases l
    SET owner = p_owner, epoch = l.epoch + 1, expires_at = v_until, ran_out = false, lapsed_at = NULL, updated_at = p_t
    WHERE l.run_id = ANY (v_take);
    -- The last write of the term before is kept beside its number: the answer to its COMMIT may have been lost.
    UPDATE @schema@.agent_runs r
    SET status = 'running', revision = r.revision + (r.status = 'pending')::integer, attempts = r.attempts + 1,
        prev_commit_id = r.commit_id, prev_commit_epoch = r.commit_epoch, prev_commit_revision = r.commit_revision,
        prev_commit_digest = r.commit_digest,
        commit_id = NULL, commit_epoch = l.epoch, commit_revision = NULL, commit_digest = NULL, updated_at = p_t
    FROM @schema@.worker_leases l
    WHERE r.run_id = ANY (v_take) AND l.run_id = r.run_id;
    DELETE FROM @schema@.ready y WHERE y.run_id = ANY (v_take);

    INSERT INTO @schema@.claims (token, owner, run_ids, epochs, made_at)
    SELECT p_token, p_owner, array_agg(l.run_id), array_agg(l.epoch), p_t
    FROM @schema@.worker_leases l WHERE l.run_id = ANY (v_take);

    PERFORM @schema@.history(p_t, e.run_ids, e.tenants, e.tasks, e.kinds, e.befores, e.afters, e.epochs, e.revisions,
                             e.owners, e.commits, e.details);
    PERFORM @schema@.emit(p_t, e.run_ids, e.tenants, e.tasks, e.types, e.epochs, e.revisions, e.bodies);
END $$;

-- A token that took nothing is kept too: a call that arrives late, after its repetition was answered, must not take
-- anything for nobody. Nothing but this row was written (p_alone): it need not wait for the disk, or every idle pod would
-- flush the log at each look. A standby keeps nothing, and gives nothing out.
CREATE OR REPLACE FUNCTION @schema@.keep_empty_token(p_t timestamptz, p_owner text, p_token uuid, p_alone boolean)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('transaction_read_only') = 'on' THEN
        RETURN;
    END IF;
    IF p_alone THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    INSERT INTO @schema@.claims (token, owner, run_ids, epochs, made_at) VALUES (p_token, p_owner, '{}', '{}', p_t);
END $$;
