-- What races are made of: worlds to start from, each verb of the interface as a call of one argument, and the whole state
-- as one line of text. Loaded once into the tests' database; not part of the product.
--
-- One task t with run 1 and four operations: pay (prepared), ship (dispatching, by d), ask (unknown, due, safe to send
-- again), look (unknown, due, to be asked about). p_who is the side that calls ('left', 'right', …): it names owners, keys, tokens and commits, so that the same
-- verb on two sides is two calls and not one that is repeated. Answers and state hold no times and nothing random.
DROP SCHEMA IF EXISTS race CASCADE;
CREATE SCHEMA race;

CREATE FUNCTION race.run(n integer) RETURNS uuid LANGUAGE sql IMMUTABLE
AS $$ SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid $$;

CREATE FUNCTION race.operation(p_step text, p_version integer DEFAULT 1) RETURNS text LANGUAGE sql IMMUTABLE
AS $$ SELECT 'default/' || race.run(1) || '/' || p_step || '/' || p_version $$;

CREATE FUNCTION race.id(p_what text) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$ SELECT md5('race ' || p_what)::uuid $$;

-- The number of a side: what it makes is run 2, 3, 4.
CREATE FUNCTION race.made_by(p_who text) RETURNS uuid LANGUAGE sql IMMUTABLE
AS $$ SELECT race.run(1 + array_position(ARRAY['left', 'right', 'third'], p_who)) $$;

-- The verbs that a run's own pod, other pods and records call. Each answers with what a caller would act on.
CREATE FUNCTION race.submit(p_who text, p_previous boolean DEFAULT false) RETURNS text LANGUAGE sql AS $$
    SELECT s.outcome || CASE WHEN s.due THEN ' due' ELSE '' END
    FROM holdfast_v1.submit('{default}', '{t}', ARRAY['submit ' || p_who], '{t}', '{d}', ARRAY['s ' || p_who], '{NULL}',
        '{NULL}', '{plan}', ARRAY[race.made_by(p_who)], '{NULL}', '{0}', '{NULL}', '{NULL}', '{9}', ARRAY[p_previous], '{f}',
        '{NULL}', '{NULL}', '{NULL}') s
$$;

CREATE FUNCTION race.replace(p_who text) RETURNS text LANGUAGE sql AS $$ SELECT race.submit(p_who, true) $$;

CREATE FUNCTION race.cancel(p_who text) RETURNS text LANGUAGE sql AS $$
    SELECT c.outcome || coalesce(' ' || c.status, '')
    FROM holdfast_v1.cancel('{default}', '{t}', ARRAY['cancel ' || p_who], '{t}', '{d}', ARRAY['c ' || p_who], '{NULL}',
        '{NULL}', '{NULL}', '{NULL}') c
$$;

CREATE FUNCTION race.retry(p_who text) RETURNS text LANGUAGE sql AS $$
    SELECT r.outcome || CASE WHEN r.due THEN ' due' ELSE '' END
    FROM holdfast_v1.retry('{default}', '{t}', ARRAY['retry ' || p_who], '{t}', '{d}', ARRAY['r ' || p_who], '{NULL}',
        '{NULL}', ARRAY[race.made_by(p_who)], '{f}', '{t}', '{NULL}', '{NULL}', '{NULL}') r
$$;

CREATE FUNCTION race.acquire(p_who text) RETURNS text LANGUAGE sql AS $$
    SELECT a.outcome || coalesce(format(' epoch %s revision %s%s%s', a.epoch, a.revision,
        CASE WHEN a.takeover THEN ' takeover' END, ' ' || a.woke_reason), '')
    FROM holdfast_v1.acquire(p_who, race.id('acquire ' || p_who), ARRAY[race.run(1)], 600000, NULL) a
$$;

CREATE FUNCTION race.claim(p_who text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(c.outcome || coalesce(format(' %s epoch %s revision %s%s%s', right(c.run_id::text, 1), c.epoch,
        c.revision, CASE WHEN c.takeover THEN ' takeover' END, ' ' || c.woke_reason), ''), ', ' ORDER BY c.run_id), 'nothing')
    FROM holdfast_v1.claim(p_who, race.id('claim ' || p_who), 10, 600000, NULL) c
$$;

CREATE FUNCTION race.renew(p_who text) RETURNS text LANGUAGE sql AS $$
    SELECT r.outcome || coalesce(' ' || r.status, '') FROM holdfast_v1.renew(ARRAY[race.run(1)], '{a}', '{1}', 600000) r
$$;

CREATE FUNCTION race.release(p_who text) RETURNS text LANGUAGE sql AS $$
    SELECT r.outcome FROM holdfast_v1.release(ARRAY[race.run(1)], '{a}', '{1}', false) r
$$;

CREATE FUNCTION race.write(p_who text, p_checkpoint jsonb DEFAULT NULL, p_finish text DEFAULT NULL,
    p_wait text DEFAULT NULL, p_signal text DEFAULT NULL, p_step text DEFAULT NULL, p_version integer DEFAULT 1,
    p_release boolean DEFAULT false, p_revision bigint DEFAULT 2)
RETURNS text LANGUAGE sql AS $$
    SELECT c.outcome || ' revision ' || coalesce(c.revision::text, '-') || CASE WHEN c.due THEN ' due' ELSE '' END
           || coalesce(' ' || c.woke_reason, '')
    FROM (SELECT array_agg(1) AS item, array_agg(race.operation(u, p_version)) AS id, array_agg(u) AS step,
                array_agg(p_version) AS version, array_agg(u) AS tool, array_agg('sha256:1'::text) AS digest,
                array_agg('{}'::jsonb) AS body, array_agg(CASE u WHEN 'look' THEN 'query' ELSE 'idempotency_key' END) AS capability,
                array_agg(CASE u WHEN 'look' THEN '{"remote_cancel_tool": "undo"}' ELSE '{"retention_ms": 86400000}' END::jsonb)
                    AS declaration, array_agg(false) AS no,
                array_agg(NULL::text) AS none
         FROM unnest(string_to_array(p_step, ' ')) AS t(u)) g,
        LATERAL (SELECT coalesce(g.item, '{}') AS item, coalesce(g.id, '{}') AS id, coalesce(g.step, '{}') AS step,
                coalesce(g.version, '{}') AS version, coalesce(g.tool, '{}') AS tool, coalesce(g.digest, '{}') AS digest,
                coalesce(g.body, '{}') AS body, coalesce(g.capability, '{}') AS capability,
                coalesce(g.declaration, '{}') AS declaration, coalesce(g.no, '{}') AS no, coalesce(g.none, '{}') AS none) s,
        LATERAL holdfast_v1.commit(ARRAY[race.run(1)], '{a}', '{1}', ARRAY[p_revision],
        ARRAY[race.id(concat_ws(' ', 'commit', p_who, p_checkpoint, p_finish, p_wait, p_step, p_version, p_release))], '{d}',
        ARRAY[p_checkpoint], ARRAY[p_finish], '{NULL}', ARRAY[p_release],
        ARRAY[CASE WHEN p_wait IS NOT NULL THEN 'all' END], ARRAY[p_signal], '{NULL}', '{NULL}',
        s.item, s.id, s.step, s.version, s.tool, s.digest, s.body, s.capability, s.declaration, s.id, s.no, s.none,
        CASE WHEN p_wait IS NULL THEN '{}' ELSE '{1}' END::integer[],
        CASE WHEN p_wait IS NULL THEN '{}' ELSE ARRAY[race.operation(p_wait)] END, '{}', '{}', '{}', '{}', '{}', '{}', '{}') c
$$;

CREATE FUNCTION race.commit(p_who text) RETURNS text LANGUAGE sql
AS $$ SELECT race.write(p_who, jsonb_build_object('by', p_who)) $$;
CREATE FUNCTION race.finish(p_who text) RETURNS text LANGUAGE sql AS $$ SELECT race.write(p_who, p_finish => 'failed') $$;
CREATE FUNCTION race.intend(p_who text) RETURNS text LANGUAGE sql AS $$ SELECT race.write(p_who, p_step => 'mail') $$;
CREATE FUNCTION race.intend_anew(p_who text) RETURNS text LANGUAGE sql
AS $$ SELECT race.write(p_who, p_step => 'pay', p_version => 2) $$;
CREATE FUNCTION race.park(p_who text) RETURNS text LANGUAGE sql
AS $$ SELECT race.write(p_who, p_wait => 'ship', p_signal => 'go', p_release => true) $$;

CREATE FUNCTION race.sweep(p_who text) RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws(' ', s.outcome, 'leases', s.leases_expired, 'timers', s.timers_due, 'exhausted', s.exhausted, 'claims',
                     s.claims_expired, 'missing', s.requests_missing)
    FROM holdfast_v1.sweep('s', 1, 100) s
$$;

-- Dispatchers.
CREATE FUNCTION race.claim_operations(p_who text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(concat_ws(' ', c.outcome, c.step_id, c.revision, c.attempt), ', ' ORDER BY c.operation_id),
                    'nothing')
    FROM holdfast_v1.claim_operations(p_who, race.id('claim_operations ' || p_who), 10, 600000, NULL, NULL) c
$$;

CREATE FUNCTION race.claim_unknown(p_who text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(concat_ws(' ', c.outcome, c.step_id, c.revision, c.attempt), ', ' ORDER BY c.operation_id),
                    'nothing')
    FROM holdfast_v1.claim_unknown(p_who, race.id('claim_unknown ' || p_who), 10, 600000, NULL, NULL) c
$$;

CREATE FUNCTION race.record_result(p_who text) RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws(' ', r.outcome, r.status, CASE WHEN r.woke THEN 'woke' END)
    FROM holdfast_v1.record_result(ARRAY[race.operation('ship')], '{d}', '{1}', '{1}', '{sha256:1}', '{succeeded}', '{r}',
        '{NULL}', '{NULL}') r
$$;

CREATE FUNCTION race.record_not_sent(p_who text) RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws(' ', r.outcome, r.status, CASE WHEN r.woke THEN 'woke' END)
    FROM holdfast_v1.record_not_sent(ARRAY[race.operation('ship')], '{d}', '{1}', '{1}', '{0}', '{NULL}') r
$$;

CREATE FUNCTION race.record_unknown(p_who text) RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws(' ', r.outcome, r.status, CASE WHEN r.woke THEN 'woke' END)
    FROM holdfast_v1.record_unknown(ARRAY[race.operation('ship')], '{d}', '{1}', '{1}', '{600000}', '{NULL}') r
$$;

CREATE FUNCTION race.expire_claims(p_who text) RETURNS text LANGUAGE sql
AS $$ SELECT 'expired ' || e.expired FROM holdfast_v1.expire_claims(100) e $$;

CREATE FUNCTION race.gate_close(p_who text) RETURNS text LANGUAGE plpgsql
AS $$ BEGIN PERFORM holdfast_v1.gate_close('race', 'race'); RETURN 'closed'; END $$;

-- Signals, facts from the remote, and what people decide.
CREATE FUNCTION race.signal(p_who text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT concat_ws(' ', s.outcome, CASE WHEN s.woke THEN 'woke' END)
            FROM holdfast_v1.signal('{default}', '{t}', ARRAY['signal ' || p_who], '{t}', '{d}', ARRAY['g ' || p_who], '{NULL}',
                '{NULL}', ARRAY['signal ' || p_who], '{go}', '{NULL}', '{NULL}') s);
END $$;

CREATE FUNCTION race.converge(p_who text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT concat_ws(' ', c.outcome, c.status, CASE WHEN c.woke THEN 'woke' END)
            FROM holdfast_v1.converge(ARRAY[race.operation('ship')], '{NULL}', '{NULL}', '{sha256:1}', '{succeeded}', '{r}',
                '{NULL}', '{NULL}', ARRAY[p_who]) c);
END $$;

CREATE FUNCTION race.resolve(p_who text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT concat_ws(' ', r.outcome, r.status, r.revision, CASE WHEN r.woke THEN 'woke' END)
            FROM holdfast_v1.resolve(ARRAY[race.operation('ask')], '{2}', '{succeeded}', ARRAY[p_who], '{seen}', '{r}', '{NULL}',
                '{NULL}') r);
END $$;

CREATE FUNCTION race.cancel_operation(p_who text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT concat_ws(' ', c.outcome, c.status, c.revision, CASE WHEN c.woke THEN 'woke' END)
            FROM holdfast_v1.cancel_operation(ARRAY[race.operation('pay')], '{0}', ARRAY[p_who], '{why}') c);
END $$;

CREATE FUNCTION race.raise_capability(p_who text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT concat_ws(' ', c.outcome, c.status, c.revision, c.capability)
            FROM holdfast_v1.raise_capability(ARRAY[race.operation('look')], '{2}', '{idempotency_key}',
                ARRAY['{"retention_ms": 86400000}'::jsonb],
                ARRAY[p_who], '{why}') c);
END $$;

CREATE FUNCTION race.compensate(p_who text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT concat_ws(' ', c.outcome, c.status)
            FROM holdfast_v1.compensate(ARRAY[race.operation('look')], '{remote_cancel}', '{undo}', ARRAY['{}'::jsonb], '{sha256:2}',
                '{none}', ARRAY['{}'::jsonb], '{NULL}', ARRAY[p_who]) c);
END $$;

CREATE FUNCTION race.claim_queries(p_who text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT coalesce(string_agg(concat_ws(' ', c.outcome, right(c.operation_id, 6), c.queries), ', '
                                       ORDER BY c.operation_id), 'nothing')
            FROM holdfast_v1.claim_queries(p_who, race.id('claim_queries ' || p_who), 10, 600000, NULL) c);
END $$;

-- The worlds.
-- The tables of the product that hold what was done; everything is forgotten and brought back without triggers and
-- foreign keys, so in any order.
CREATE FUNCTION race.tables() RETURNS SETOF name LANGUAGE sql STABLE AS $$
    SELECT c.relname FROM pg_class c
    WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'r'
      AND c.relname NOT IN ('schema_version', 'run_transition', 'operation_transition')
$$;

CREATE FUNCTION race.forget() RETURNS void LANGUAGE plpgsql SET session_replication_role = replica AS $$
DECLARE
    v_table name;
BEGIN
    FOR v_table IN SELECT race.tables() LOOP
        EXECUTE format('DELETE FROM holdfast.%I', v_table);
    END LOOP;
    INSERT INTO holdfast.control SELECT * FROM public.control_at_install;
END $$;

CREATE FUNCTION race.must(p_answer text, p_expected text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_answer IS DISTINCT FROM p_expected THEN
        RAISE EXCEPTION 'the world cannot be made: % instead of %', p_answer, p_expected;
    END IF;
END $$;

-- held     by a, epoch 1, revision 2
-- over     the same, and its lease has run out
-- late     held, and the claim on ship has run out
-- ready    given back
-- parked   waits for ship, or for a signal "go"
-- ended    failed; ship, ask and look are in doubt
CREATE FUNCTION race.make(p_world text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM race.forget();
    PERFORM race.must((SELECT s.outcome FROM holdfast_v1.submit('{default}', '{t}', '{first}', '{t}', '{d}', '{s}', '{NULL}',
        '{NULL}', '{plan}', ARRAY[race.run(1)], '{NULL}', '{0}', '{NULL}', '{NULL}', '{9}', '{f}', '{f}', '{NULL}', '{NULL}',
        '{NULL}') s), 'created');
    PERFORM race.must((SELECT a.outcome FROM holdfast_v1.acquire('a', race.id('world'), ARRAY[race.run(1)], 600000, NULL) a),
                      'acquired');
    PERFORM race.must(race.write('world', p_step => 'ask look pay ship', p_revision => 1), 'ok revision 2');
    PERFORM c.outcome FROM holdfast_v1.claim_operations('d', race.id('world ops'), 10, 600000, NULL,
        ARRAY[race.operation('ask'), race.operation('look'), race.operation('ship')]) c;
    PERFORM r.outcome FROM holdfast_v1.record_unknown(ARRAY[race.operation('ask'), race.operation('look')], '{d,d}', '{1,1}',
        '{1,1}', '{0,0}', '{NULL,NULL}') r;
    INSERT INTO holdfast.service_leases (name, owner, epoch, expires_at) VALUES ('sweep', 's', 1, 'infinity');
    CASE p_world
        WHEN 'held' THEN NULL;
        WHEN 'over' THEN UPDATE holdfast.worker_leases SET expires_at = clock_timestamp() - interval '1 second';
        WHEN 'late' THEN
            UPDATE holdfast.tool_operations SET dispatch_until = clock_timestamp() - interval '1 second'
            WHERE status = 'dispatching';
        WHEN 'ready' THEN PERFORM race.must(race.release('world'), 'released');
        WHEN 'parked' THEN PERFORM race.must(race.park('world'), 'ok revision 3');
        WHEN 'ended' THEN PERFORM race.must(race.finish('world'), 'ok revision 3');
    END CASE;
END $$;

-- Makes every world once and keeps what its tables hold: bringing that back is much faster than the verbs are.
CREATE TABLE race.kept (world text, of_table name, PRIMARY KEY (world, of_table));

CREATE FUNCTION race.keep(p_worlds text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_world text;
    v_table name;
    v_some  boolean;
BEGIN
    FOREACH v_world IN ARRAY p_worlds LOOP
        PERFORM race.make(v_world);
        FOR v_table IN SELECT race.tables() LOOP
            EXECUTE format('SELECT EXISTS (SELECT FROM holdfast.%I)', v_table) INTO v_some;
            IF v_some AND v_table <> 'control' THEN
                EXECUTE format('CREATE TABLE race.%I AS SELECT * FROM holdfast.%I', v_world || '_' || v_table, v_table);
                INSERT INTO race.kept VALUES (v_world, v_table);
            END IF;
        END LOOP;
    END LOOP;
END $$;

CREATE FUNCTION race.world(p_world text) RETURNS text LANGUAGE plpgsql SET session_replication_role = replica AS $$
DECLARE
    v_table name;
BEGIN
    PERFORM race.forget();
    FOR v_table IN SELECT k.of_table FROM race.kept k WHERE k.world = p_world LOOP
        EXECUTE format('INSERT INTO holdfast.%I OVERRIDING SYSTEM VALUE SELECT * FROM race.%I', v_table, p_world || '_' || v_table);
    END LOOP;
    RETURN 'made';
END $$;

-- Everything that another transaction could come to see, in one line. Events and history are told per run: their order
-- between runs is nobody's business.
CREATE FUNCTION race.state() RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws(' | ',
        (SELECT string_agg(concat_ws(' ', 'run', right(r.run_id::text, 1), r.status, 'revision', r.revision, 'epoch', l.epoch,
                'owner', coalesce(l.owner, '-'), CASE WHEN l.expires_at > clock_timestamp() THEN 'valid' END,
                CASE WHEN l.ran_out THEN 'ran out' END, CASE WHEN y.run_id IS NOT NULL THEN 'ready' END,
                CASE WHEN m.run_id IS NOT NULL THEN 'timer' END, 'waits', r.wait_mode, r.wait_signal, 'woke', r.woke_reason,
                'attempts', r.attempts, 'failures', r.failures, 'checkpoint', r.checkpoint, d.output, d.failure),
                ' | ' ORDER BY r.run_id)
         FROM holdfast.agent_runs r JOIN holdfast.worker_leases l USING (run_id) JOIN holdfast.run_data d USING (run_id)
         LEFT JOIN holdfast.ready y USING (run_id) LEFT JOIN holdfast.timers m USING (run_id)),
        (SELECT string_agg(concat_ws(' ', 'task', k.task_id, right(k.active_run_id::text, 1)), ' | ' ORDER BY k.task_id)
         FROM holdfast.agent_tasks k),
        (SELECT string_agg(concat_ws(' ', 'operation', right(o.run_id::text, 1), o.step_id, o.effect_version, o.status,
                'revision', o.revision, 'attempts', o.attempts, o.attempts_not_sent, coalesce(o.dispatch_owner, '-'),
                o.remote_id, CASE WHEN o.detached THEN 'detached' END, CASE WHEN o.not_before IS NOT NULL THEN 'later' END,
                o.capability, 'asked by', to_jsonb(o) ->> 'query_owner', to_jsonb(o) ->> 'queries'),
                ' | ' ORDER BY o.operation_id) FROM holdfast.tool_operations o),
        (SELECT string_agg(concat_ws(' ', 'request', q.request_key, q.outcome, right(q.run_id::text, 1)), ' | '
                ORDER BY q.request_key) FROM holdfast.requests q),
        (SELECT string_agg(concat_ws(' ', 'signal', s.signal_id, right(s.consumed_by::text, 1)), ' | ' ORDER BY s.signal_id)
         FROM holdfast.signals s),
        (SELECT string_agg(concat_ws(' ', 'events', e.run, e.types), ' | ' ORDER BY e.run)
         FROM (SELECT right(v.run_id::text, 1) AS run, string_agg(v.type || ':' || v.epoch || ':' || v.revision, ',' ORDER BY v.seq) AS types
               FROM holdfast.outbox_events v GROUP BY 1) e),
        (SELECT string_agg(concat_ws(' ', 'history', h.run, h.kinds), ' | ' ORDER BY h.run)
         FROM (SELECT right(v.run_id::text, 1) AS run, string_agg(v.kind || ':' || v.epoch || ':' || v.revision, ',' ORDER BY v.history_id) AS kinds
               FROM holdfast.run_history v GROUP BY 1) h),
        (SELECT string_agg(concat_ws(' ', 'evidence', e.step, e.kinds), ' | ' ORDER BY e.step)
         FROM (SELECT split_part(v.operation_id, '/', 3) AS step, string_agg(v.kind || ':' || v.attempt, ',' ORDER BY v.evidence_id) AS kinds
               FROM holdfast.operation_evidence v GROUP BY 1) e),
        (SELECT string_agg(concat_ws(' ', 'refused', f.verb, f.reason, f.epoch, f.refused), ' | ' ORDER BY f.verb, f.reason, f.epoch)
         FROM holdfast.refusals f),
        (SELECT 'gate closed' FROM holdfast.control c WHERE c.gate_closed))
$$;

-- What holds at every moment, whatever was called: NULL, or what does not.
CREATE FUNCTION race.broken() RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(b, ', ') FROM (
        SELECT 'stranded run ' || s.run_id FROM holdfast.stranded s
        UNION ALL SELECT 'orphan ' || o.kind || ' ' || o.id FROM holdfast.orphans o
        UNION ALL
        SELECT 'run ' || right(r.run_id::text, 1) || ': ' || CASE
                   WHEN r.revision < coalesce(h.revision, 0) THEN 'its revision went back'
                   WHEN l.epoch < coalesce(h.epoch, 0) THEN 'its epoch went back'
                   WHEN h.ends > 1 THEN 'it ended twice'
                   WHEN (r.status IN ('pending', 'running')) <> (h.ends = 0) THEN 'its end is not in its history'
                   WHEN (r.status IN ('pending', 'running')) <> (e.ends = 0) THEN 'its end is not among its events'
                   WHEN e.after_end THEN 'a step''s event follows its end' END
        FROM holdfast.agent_runs r JOIN holdfast.worker_leases l USING (run_id)
        CROSS JOIN LATERAL (SELECT max(v.revision) AS revision, max(v.epoch) AS epoch,
                                   count(*) FILTER (WHERE v.to_status NOT IN ('pending', 'running')) AS ends
                            FROM holdfast.run_history v WHERE v.run_id = r.run_id) h
        CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE v.type IN ('run.succeeded', 'run.failed', 'run.cancelled')) AS ends,
                                   bool_or(v.type LIKE 'run.%' AND v.seq > x.seq) AS after_end
                            FROM holdfast.outbox_events v
                            CROSS JOIN LATERAL (SELECT min(w.seq) AS seq FROM holdfast.outbox_events w WHERE w.run_id = r.run_id
                                AND w.type IN ('run.succeeded', 'run.failed', 'run.cancelled')) x
                            WHERE v.run_id = r.run_id) e
        UNION ALL
        SELECT 'operation ' || o.step_id || ': more attempts not sent than made' FROM holdfast.tool_operations o
        WHERE o.attempts_not_sent > o.attempts
        UNION ALL
        SELECT 'operation ' || o.step_id || ': claimed twice at one revision' FROM holdfast.operation_evidence v
        JOIN holdfast.tool_operations o USING (operation_id) WHERE v.kind = 'claimed'
        GROUP BY o.step_id, v.operation_id, v.dispatch_revision HAVING count(*) > 1
        UNION ALL
        SELECT 'more than one run of the task goes on' FROM holdfast.agent_runs r WHERE r.status IN ('pending', 'running')
        HAVING count(*) > 1) x(b)
    WHERE b IS NOT NULL
$$;

-- How long leases last, for verbs that change nothing else.
CREATE FUNCTION race.leases() RETURNS text LANGUAGE sql
AS $$ SELECT string_agg(l.expires_at::text, ' ' ORDER BY l.run_id) FROM holdfast.worker_leases l $$;
