-- What the audit of a failover compares, and what it puts into the ledger.
\ir fixture.inc

DO $$
DECLARE
    r uuid := probe.run(1); a text := probe.op(r, 'a'); b text := probe.op(r, 'b');
    e uuid := probe.run(2); n uuid := probe.uuid(99);
BEGIN
    UPDATE holdfast.agent_runs SET status = 'succeeded', revision = 4 WHERE run_id = e;
    PERFORM probe.same((SELECT string_agg(x.verdict, ' ' ORDER BY x.item) FROM holdfast_v1.audit_runs(
        ARRAY[r, r, r, r, e, e, n], ARRAY[7, 8, 6, 7, 7, 7, 1]::bigint[], ARRAY[0, 0, 0, 0, 4, 4, 1],
        ARRAY[NULL, NULL, NULL, 'failed', 'succeeded', 'failed', NULL]) x), 'same behind ahead reopened same forked lost');
    PERFORM probe.claim(b);
    PERFORM probe.result(b, 1, 1);
    PERFORM probe.same((SELECT string_agg(x.verdict, ' ' ORDER BY x.item) FROM holdfast_v1.audit_operations(
        ARRAY[a, a, b, b, b, 'x', 'x', 'x'], ARRAY[0, 1, 1, 1, 2, 1, 0, 0],
        ARRAY[NULL, NULL, NULL, 'failed_final', 'succeeded', NULL, 'succeeded', 'cancelled']) x),
        'same lost same forked lost orphan orphan lost');
END $$;

-- An orphan effect: in doubt, by the claim that Kafka holds; its run waits for it, whatever it was about to do.
DO $$
DECLARE
    r uuid := probe.run(11); s uuid := probe.run(12); h uuid := probe.run(13); d uuid := probe.run(14);
    ids text[] := ARRAY['default/' || r || '/x/1', 'default/' || s || '/x/1', 'default/' || h || '/x/y/2',
                        'default/' || d || '/x/1', 'default/' || probe.uuid(98) || '/x/1', 'nonsense'];
    v_call text := 'SELECT string_agg(outcome, '' '' ORDER BY item) FROM holdfast_v1.audit_adopt($1, $2, $3, $4, ''ann'', ''audit'')';
    v_got text;
BEGIN
    INSERT INTO holdfast.ready (run_id, handler, priority, since) VALUES (r, 'plan', 0, clock_timestamp());
    UPDATE holdfast.agent_runs SET wait_mode = 'none', wait_until = clock_timestamp() WHERE run_id = s;
    INSERT INTO holdfast.timers (run_id, at) VALUES (s, clock_timestamp());
    UPDATE holdfast.worker_leases SET owner = 'pod', expires_at = clock_timestamp() + interval '1 hour' WHERE run_id = h;
    UPDATE holdfast.agent_runs SET status = 'cancelled' WHERE run_id = d;
    EXECUTE v_call INTO v_got USING ids, array_fill('pay'::text, ARRAY[6]), array_fill('sha256:x'::text, ARRAY[6]),
                                    ARRAY[1, 2, 1, 1, 1, 1];
    PERFORM probe.same(v_got, 'adopted adopted adopted adopted no_run invalid');
    EXECUTE v_call INTO v_got USING ids, array_fill('pay'::text, ARRAY[6]), array_fill('sha256:x'::text, ARRAY[6]),
                                    ARRAY[1, 2, 1, 1, 1, 1];
    PERFORM probe.same(v_got, 'exists exists exists exists no_run invalid');
    PERFORM probe.same(probe.state(ids[2]) || ' ' || probe.evidence(ids[2]) || ' ' || probe.events(ids[2]),
                       'unknown a2 n0 r0 lost_history unknown:lost_history');
    PERFORM probe.same(probe.claim(ids[1]) || ' ' || probe.again(ids[1]), 'not_ready not_allowed');
    PERFORM probe.same((SELECT string_agg(l.owner, '') FROM holdfast.worker_leases l WHERE l.run_id = h), NULL);
    PERFORM probe.same((SELECT epoch FROM holdfast.worker_leases WHERE run_id = h), 7::bigint);
    PERFORM probe.same((SELECT string_agg(outcome, ' ') FROM holdfast_v1.acquire('next', gen_random_uuid(), ARRAY[r, s, h], 1000,
                            NULL)), 'not_ready not_ready not_ready');
    PERFORM probe.same((SELECT detached FROM holdfast.tool_operations WHERE operation_id = ids[4]), true);
    PERFORM probe.same((SELECT count(*) FROM holdfast.stranded WHERE run_id IN (r, s, h)), 0::bigint);
    -- Settled, by a fact that names the lost attempt: the run goes on.
    PERFORM probe.same((SELECT outcome || status || woke FROM holdfast_v1.converge(ARRAY[ids[1]], ARRAY[1], ARRAY[NULL::text],
        ARRAY['sha256:x'], ARRAY['succeeded'], ARRAY['rem'], ARRAY['{}'::jsonb], ARRAY['{}'::jsonb], ARRAY['ann'])),
        'settledsucceededtrue');
    PERFORM probe.same((SELECT outcome FROM holdfast_v1.acquire('next', gen_random_uuid(), ARRAY[r], 1000, NULL)), 'acquired');
    PERFORM probe.fails('22023', 'SELECT * FROM holdfast_v1.audit_adopt(''{}'', ''{}'', ''{}'', ''{}'', ''ann'', '' '')');
END $$;
