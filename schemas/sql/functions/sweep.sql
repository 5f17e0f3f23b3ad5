-- sweep(p_owner, p_epoch, p_limit) → one row                                                          interface; worker
--
-- What time alone brings about. By the holder of the service lease 'sweep'; every part is bounded by p_limit, is decided
-- under its row locks, and never waits for a row: what it did not get it leaves for the next time. So a sweeper that
-- lost its lease in the middle does no harm.
--   leases_expired    leases that ran out: their runs are ready, and their next acquisition is a takeover
--                     (of runs that have ended: cleared, not counted)
--   exhausted         of these, those at their attempt limit: failed
--   timers_due        parked runs that became ready by time; deadlines: those of them by their deadline
--   claims_expired    dispatches whose claim ran out; doubtful: the tool of each operation that is in doubt by it for the
--                     first time
--   requests_missing  controls whose task never came; missing: of those that are records, to be dead-lettered,
--                     [{"tenant_id", "task_id", "request_key", "verb", "source", "by", "record"}, …]. The record stays in
--                     `requests`, for this answer may be lost
--   escalated         doubts that have lasted as long as their tool declares a person need not be asked
--   tokens_pruned     claim tokens past control.token_keep_ms
--   due               run ids that may be acquired now: worth a hint
-- Outcomes: ok; not_holder (nothing was done).
-- Errors: 22023, 25001.
-- Locks (all SKIP LOCKED): requests, leases, runs, operations.
-- Tables: control, service_leases, requests, worker_leases, agent_runs, ready, timers, claims, tool_operations,
--         operation_evidence, run_history, outbox_events.
DROP FUNCTION IF EXISTS @iface@.sweep(text, bigint, integer); -- its result has grown
CREATE FUNCTION @iface@.sweep(p_owner text, p_epoch bigint, p_limit integer)
RETURNS TABLE (outcome text, leases_expired integer, timers_due integer, deadlines integer, exhausted integer,
    claims_expired integer, requests_missing integer, tokens_pruned integer, due uuid[], missing jsonb, escalated integer,
    doubtful text[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET lock_timeout = '5s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_material = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_keep     interval;
    v_keys     record;
    v_leases   uuid[];
    v_parked   uuid[];
    v_ready    uuid[];
    v_fail     uuid[];
    v_clear    uuid[];
    v_woken    uuid[];
    v_deadline integer;
    v_claims   integer;
    v_missing  integer := 0;
    v_records  jsonb;
    v_pruned   integer;
    v_escalated integer;
    v_doubtful text[];
    t          timestamptz := clock_timestamp();
BEGIN
    PERFORM @schema@.batch_check('sweep', '{0}');
    IF coalesce(p_limit, 0) <= 0 THEN
        RAISE EXCEPTION 'sweep: a limit of %', p_limit USING ERRCODE = '22023';
    END IF;
    IF NOT EXISTS (SELECT 1 FROM @schema@.service_leases s
                   WHERE s.name = 'sweep' AND s.owner = p_owner AND s.epoch = p_epoch AND s.expires_at > t) THEN
        RETURN QUERY SELECT 'not_holder', 0, 0, 0, 0, 0, 0, 0, '{}'::uuid[], NULL::jsonb, 0, '{}'::text[];
        RETURN;
    END IF;
    PERFORM @schema@.note_foreign(t);
    SELECT c.token_keep_ms * interval '1 millisecond' INTO STRICT v_keep FROM @schema@.control c WHERE c.the_one;

    -- Lock: found with an earlier reading of the clock, decided by the later one.
    SELECT array_agg(x.tenant_id) AS tenants, array_agg(x.request_key) AS keys INTO v_keys
    FROM (SELECT q.tenant_id, q.request_key FROM @schema@.requests q
          WHERE q.outcome = 'waiting' AND q.waiting_until <= t
          ORDER BY q.waiting_until LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED) x;
    SELECT array_agg(x.run_id) INTO v_leases
    FROM (SELECT l.run_id FROM @schema@.worker_leases l
          WHERE l.owner IS NOT NULL AND l.expires_at <= t
          ORDER BY l.run_id LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED) x;
    SELECT array_agg(x.run_id) INTO v_leases
    FROM (SELECT r.run_id FROM @schema@.agent_runs r WHERE r.run_id = ANY (v_leases)
          ORDER BY r.run_id FOR NO KEY UPDATE SKIP LOCKED) x;
    SELECT array_agg(x.run_id) INTO v_parked
    FROM (SELECT m.run_id FROM @schema@.timers m JOIN @schema@.agent_runs r ON r.run_id = m.run_id
          WHERE m.at <= t ORDER BY m.at LIMIT p_limit FOR NO KEY UPDATE OF r SKIP LOCKED) x;
    t := clock_timestamp();

    -- Leases that ran out.
    SELECT array_agg(l.run_id ORDER BY l.run_id) FILTER (WHERE r.status NOT IN ('pending', 'running')),
           array_agg(l.run_id ORDER BY l.run_id) FILTER (WHERE r.status IN ('pending', 'running') AND r.attempts < r.max_attempts),
           array_agg(l.run_id ORDER BY l.run_id) FILTER (WHERE r.status IN ('pending', 'running') AND r.attempts >= r.max_attempts)
    INTO v_clear, v_ready, v_fail
    FROM @schema@.worker_leases l JOIN @schema@.agent_runs r ON r.run_id = l.run_id
    WHERE l.run_id = ANY (v_leases) AND l.owner IS NOT NULL AND l.expires_at <= t;
    UPDATE @schema@.worker_leases l SET owner = NULL, updated_at = t WHERE l.run_id = ANY (v_clear);
    UPDATE @schema@.worker_leases l SET owner = NULL, ran_out = true, lapsed_at = l.expires_at, updated_at = t
    WHERE l.run_id = ANY (v_ready);
    -- At its old place in the queue: it has waited long enough.
    INSERT INTO @schema@.ready (run_id, handler, priority, since)
    SELECT r.run_id, r.handler, r.priority, r.created_at FROM @schema@.agent_runs r WHERE r.run_id = ANY (v_ready)
    ORDER BY r.run_id ON CONFLICT (run_id) DO NOTHING;
    IF v_fail IS NOT NULL THEN
        v_fail := @schema@.endable_runs(v_fail);
        PERFORM @schema@.fail_runs(t, v_fail, array_fill('attempts_exhausted'::text, ARRAY[cardinality(v_fail)]));
    END IF;

    -- Times reached. A timer of a run that does not wait any more is nobody's; it should not be there.
    v_woken := @schema@.wake_runs(v_parked, t);
    SELECT count(*) FILTER (WHERE r.woke_reason = 'deadline') INTO v_deadline
    FROM @schema@.agent_runs r WHERE r.run_id = ANY (v_woken);
    DELETE FROM @schema@.timers m USING @schema@.agent_runs r
    WHERE m.run_id = ANY (v_parked) AND r.run_id = m.run_id
      AND (r.status NOT IN ('pending', 'running') OR r.wait_mode IS NULL OR r.woke_reason IS NOT NULL);

    -- Controls that waited in vain.
    IF v_keys.keys IS NOT NULL THEN
        WITH gone AS (
            UPDATE @schema@.requests q SET outcome = 'missing', waiting_until = NULL
            FROM unnest(v_keys.tenants, v_keys.keys) AS u(tenant_id, request_key)
            WHERE q.tenant_id = u.tenant_id AND q.request_key = u.request_key
              AND q.outcome = 'waiting' AND q.waiting_until <= t
            RETURNING q.tenant_id, q.task_id, q.request_key, q.verb, q.source, q.requested_by, q.record)
        SELECT count(*), jsonb_agg(jsonb_build_object(
                   'tenant_id', g.tenant_id, 'task_id', g.task_id, 'request_key', g.request_key, 'verb', g.verb,
                   'source', g.source, 'by', g.requested_by, 'record', g.record))
                   FILTER (WHERE g.record IS NOT NULL)
        INTO v_missing, v_records FROM gone g;
    END IF;

    SELECT x.expired, x.doubtful INTO v_claims, v_doubtful FROM @iface@.expire_claims(least(p_limit, 1000)) x;
    v_escalated := @schema@.escalate(p_limit);
    DELETE FROM @schema@.claims c WHERE c.token IN (
        SELECT k.token FROM @schema@.claims k WHERE k.made_at < t - v_keep LIMIT p_limit FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS v_pruned = ROW_COUNT;

    RETURN QUERY SELECT 'ok', coalesce(cardinality(v_ready), 0) + coalesce(cardinality(v_fail), 0),
        coalesce(cardinality(v_woken), 0), v_deadline, coalesce(cardinality(v_fail), 0), coalesce(v_claims, 0), v_missing,
        v_pruned, coalesce(v_ready, '{}') || coalesce(v_woken, '{}'), v_records, v_escalated, v_doubtful;
END $$;
