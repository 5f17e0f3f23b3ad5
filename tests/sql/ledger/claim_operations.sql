-- claim_operations: what may be claimed, by whom, how much, and the answer to the same token.
\ir fixture.inc

DO $$
DECLARE
    r1 uuid := probe.run(1);
    r2 uuid := probe.run(2);
    a text := probe.op(r1, 'a');
    b text := probe.op(r1, 'b', 'idempotency_key', 60000);
    c record;
    t timestamptz := clock_timestamp();
BEGIN
    -- A first claim: everything a dispatcher needs, in one answer.
    SELECT * INTO STRICT c FROM holdfast_v1.claim_operations('d1', probe.uuid(101), 10, 30000, '{pay}', NULL) x
     WHERE x.operation_id = a;
    PERFORM probe.same(c.outcome, 'claimed');
    PERFORM probe.same((c.run_id, c.tenant_id, c.task_id, c.step_id, c.effect_version)::text,
                       (r1, 'default', 't1', 'a', 1)::text);
    PERFORM probe.same((c.tool_name, c.request_digest, c.request_body, c.external_key, c.capability)::text,
                       ('pay', 'sha256:a', '{"a": 1}'::jsonb, a, 'none')::text);
    PERFORM probe.same((c.revision, c.attempt, c.attempts_not_sent, c.epoch, c.ttl_ms)::text, (1, 1, 0, 7, 30000)::text);
    PERFORM probe.same(c.traceparent, 'trace-1');
    PERFORM probe.same(c.timeline, holdfast.server_timeline());
    ASSERT c.dispatch_until BETWEEN t + interval '30 s' AND clock_timestamp() + interval '30 s';
    PERFORM probe.same(probe.state(a), 'dispatching a1 n0 r1');
    PERFORM probe.same(probe.evidence(a), 'claimed');
    PERFORM probe.same((SELECT first_sent_at BETWEEN t AND clock_timestamp() FROM holdfast.tool_operations
                         WHERE operation_id = a), true);

    -- Exclusive: nothing is left to choose, and by name it is busy.
    PERFORM probe.same((SELECT count(*) FROM holdfast_v1.claim_operations('d2', probe.uuid(102), 10, 30000, NULL, NULL)),
                       0::bigint);
    PERFORM probe.same(probe.claim(a, 'd2'), 'busy');

    -- The same token: the same answer, nothing new taken, nothing extended.
    a := probe.op(r2, 'c');
    PERFORM probe.same((SELECT string_agg(x.outcome || x.step_id || x.attempt, ' ' ORDER BY x.step_id)
                          FROM holdfast_v1.claim_operations('d1', probe.uuid(101), 10, 30000, NULL, NULL) x),
                       'claimeda1 claimedb1');
    ASSERT (SELECT bool_and(x.dispatch_until = c.dispatch_until AND x.ttl_ms <= 30000)
              FROM holdfast_v1.claim_operations('d1', probe.uuid(101), 10, 30000, NULL, NULL) x);
    -- Also after an empty answer: token 102 took nothing and never will.
    PERFORM probe.same((SELECT count(*) FROM holdfast_v1.claim_operations('d2', probe.uuid(102), 10, 30000, NULL, NULL)),
                       0::bigint);
    -- What is no longer held is token_used: one settled, one run out.
    PERFORM probe.same(probe.result(b, 1, 1), 'recorded succeeded');
    UPDATE holdfast.tool_operations SET dispatch_until = clock_timestamp() WHERE step_id = 'a';
    PERFORM probe.same((SELECT string_agg(x.outcome, ' ')
                          FROM holdfast_v1.claim_operations('d1', probe.uuid(101), 10, 30000, NULL, NULL) x),
                       'token_used token_used');
    -- Another session cannot ask with it.
    PERFORM probe.fails('22023',
        format('SELECT * FROM holdfast_v1.claim_operations(%L, %L, 1, 1000, NULL, NULL)', 'dX', probe.uuid(101)));
END $$;

-- Named ones: every item has exactly one outcome, in the order given.
DO $$
DECLARE
    r3 uuid := probe.run(3);
    r4 uuid := probe.run(4);
    v_ids text[];
BEGIN
    PERFORM probe.op(r3, 'free'), probe.op(r3, 'held'), probe.op(r3, 'other', p_tool => 'mail'),
            probe.op(r3, 'settled'), probe.op(r3, 'doubt'), probe.op(r4, 'ended');
    UPDATE holdfast.agent_runs SET status = 'cancelled' WHERE run_id = r4;
    PERFORM probe.claim('default/' || r3 || '/' || s || '/1') FROM unnest('{held,settled,doubt}'::text[]) s;
    PERFORM probe.same(probe.result('default/' || r3 || '/settled/1', 1, 1), 'recorded succeeded');
    PERFORM probe.same(probe.unknown('default/' || r3 || '/doubt/1', 1, 1), 'recorded unknown');
    v_ids := ARRAY['default/' || r4 || '/ended/1', NULL, 'default/' || r3 || '/free/1', 'nobody',
                   'default/' || r3 || '/held/1', 'default/' || r3 || '/other/1', 'default/' || r3 || '/settled/1',
                   'default/' || r3 || '/doubt/1'];
    PERFORM probe.same((SELECT string_agg(x.item || x.outcome, ' ' ORDER BY x.item)
                          FROM holdfast_v1.claim_operations('d1', gen_random_uuid(), 8, 30000, '{pay}', v_ids) x),
        '1terminal 2missing 3claimed 4missing 5busy 6not_ready 7terminal 8not_ready');
    PERFORM probe.same(probe.state('default/' || r3 || '/other/1'), 'prepared a0 n0 r0');
    PERFORM probe.same(probe.state('default/' || r4 || '/ended/1'), 'prepared a0 n0 r0');
END $$;

-- A terminal run's operations: only detached ones and compensations.
DO $$
DECLARE
    r uuid := probe.run(5);
    v_status text;
BEGIN
    PERFORM probe.op(r, 'plain'), probe.op(r, 'detached'), probe.op(r, 'undo');
    UPDATE holdfast.tool_operations SET detached = true WHERE run_id = r AND step_id = 'detached';
    UPDATE holdfast.tool_operations SET compensates = 'x', detached = true WHERE run_id = r AND step_id = 'undo';
    FOREACH v_status IN ARRAY '{cancelled}'::text[] LOOP
        UPDATE holdfast.agent_runs SET status = v_status WHERE run_id = r;
    END LOOP;
    PERFORM probe.same((SELECT string_agg(x.step_id, ' ' ORDER BY x.step_id)
                          FROM holdfast_v1.claim_operations('d1', gen_random_uuid(), 100, 30000, NULL, NULL) x
                         WHERE x.run_id = r), 'detached undo');
    PERFORM probe.same(probe.claim('default/' || r || '/plain/1'), 'terminal');
END $$;

-- after_settled: once its predecessor is settled, whichever way; not while it is in doubt.
DO $$
DECLARE
    r uuid := probe.run(6);
    p text := probe.op(r, 'p');
    n text := probe.op(r, 'n', p_after => p);
    x text := probe.op(r, 'x', p_after => 'nobody');
BEGIN
    PERFORM probe.same(probe.claim(n), 'not_ready');
    PERFORM probe.same(probe.claim(p), 'claimed 1/1');
    PERFORM probe.same(probe.claim(n), 'not_ready');
    PERFORM probe.same(probe.unknown(p, 1, 1), 'recorded unknown');
    PERFORM probe.same((SELECT count(*) FROM holdfast_v1.claim_operations('d1', gen_random_uuid(), 100, 30000, NULL, NULL)
                         WHERE run_id = r), 0::bigint);
    UPDATE holdfast.tool_operations SET status = 'failed_final' WHERE operation_id = p;
    PERFORM probe.same(probe.claim(n), 'claimed 1/1');
    PERFORM probe.same(probe.claim(x), 'not_ready');
END $$;

-- Choosing: the limit, the oldest first, a share for every tool, and what is left over to those that have more.
DO $$
DECLARE
    r uuid := probe.run(7);
BEGIN
    UPDATE holdfast.tool_operations SET status = 'cancelled' WHERE status IN ('prepared');
    PERFORM probe.op(r, 'm' || lpad(g::text, 2, '0'), p_tool => 'much') FROM generate_series(1, 20) g;
    PERFORM probe.op(r, 'l' || g, p_tool => 'little') FROM generate_series(1, 2) g;
    PERFORM probe.same((SELECT string_agg(x.step_id, ' ' ORDER BY x.item)
                          FROM holdfast_v1.claim_operations('d1', gen_random_uuid(), 6, 30000, '{much,little}', NULL) x
                         WHERE x.tool_name = 'much'), 'm01 m02 m03 m04');
    PERFORM probe.same((SELECT count(*) FROM holdfast.tool_operations WHERE status = 'dispatching' AND tool_name = 'little'),
                       2::bigint);
    PERFORM probe.same((SELECT count(*) FROM holdfast_v1.claim_operations('d1', gen_random_uuid(), 6, 30000, '{none}', NULL)),
                       0::bigint);
    PERFORM probe.same((SELECT count(*) FROM holdfast_v1.claim_operations('d1', gen_random_uuid(), 6, 30000, NULL, NULL)),
                       6::bigint);
    PERFORM probe.same((SELECT count(*) FROM holdfast_v1.claim_operations('d1', gen_random_uuid(), 1000, 30000, NULL, NULL)),
                       10::bigint);
END $$;

-- What is a bug of the caller.
DO $$
DECLARE
    v_call constant text := 'SELECT * FROM holdfast_v1.claim_operations(%s)';
BEGIN
    PERFORM probe.fails('22023', format(v_call, a)) FROM unnest(ARRAY[
        $a$'d1', gen_random_uuid(), 1, 0, NULL, NULL$a$,
        $a$'d1', gen_random_uuid(), 1, -1, NULL, NULL$a$,
        $a$'d1', gen_random_uuid(), 1, NULL, NULL, NULL$a$,
        $a$'d1', gen_random_uuid(), 1, 600001, NULL, NULL$a$,
        $a$'d1', gen_random_uuid(), 0, 1000, NULL, NULL$a$,
        $a$'d1', gen_random_uuid(), 1001, 1000, NULL, NULL$a$,
        $a$'d1', gen_random_uuid(), NULL, 1000, NULL, NULL$a$,
        $a$'', gen_random_uuid(), 1, 1000, NULL, NULL$a$,
        $a$NULL, gen_random_uuid(), 1, 1000, NULL, NULL$a$,
        $a$'d1', NULL, 1, 1000, NULL, NULL$a$,
        $a$'d1', gen_random_uuid(), 2, 1000, NULL, '{x,x}'$a$]) a;
END $$;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT probe.fails('25001', $$SELECT * FROM holdfast_v1.claim_operations('d1', gen_random_uuid(), 1, 1000, NULL, NULL)$$);
ROLLBACK;

-- A closed gate: nothing was looked at; the token is used up, for that call may be delivered once more.
SELECT holdfast_v1.gate_close('test', 'closed for a test');
DO $$
BEGIN
    PERFORM probe.same((SELECT string_agg(x.item || x.outcome || coalesce(x.operation_id, '-'), ' ')
                          FROM holdfast_v1.claim_operations('d1', probe.uuid(999), 6, 30000, NULL, NULL) x), '1gate_closed-');
    PERFORM probe.same((SELECT count(*) FROM holdfast.claims WHERE token = probe.uuid(999)), 1::bigint);
END $$;
