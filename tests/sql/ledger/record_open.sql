-- record_not_sent, record_unknown, expire_claims: a claim that ends without an answer. Never back to prepared.
\ir fixture.inc

-- Not sent: unsent, for every capability; claimable by claim_operations after the back-off, never by claim_unknown.
DO $$
DECLARE
    v_capability text;
    a text;
    n integer := 0;
BEGIN
    FOREACH v_capability IN ARRAY '{none,idempotency_key,deterministic_id,query}'::text[] LOOP
        n := n + 1;
        a := probe.op(probe.run(n), 'a', v_capability, 60000);
        PERFORM probe.same(probe.claim(a), 'claimed 1/1');
        PERFORM probe.same(probe.not_sent(a, 1, 1, p_retry_ms => 3600000), 'recorded unknown');
        PERFORM probe.same(probe.state(a), 'unknown a1 n1 r2');
        PERFORM probe.same(probe.claim(a), 'not_ready');
        PERFORM probe.same((SELECT count(*) FROM holdfast_v1.claim_operations('d9', gen_random_uuid(), 10, 1000, NULL,
                                                                              NULL)), 0::bigint);
        UPDATE holdfast.tool_operations SET not_before = clock_timestamp() WHERE operation_id = a;
        PERFORM probe.same(probe.again(a), 'not_ready');
        PERFORM probe.same((SELECT outcome || attempt || attempts_not_sent FROM holdfast_v1.claim_operations(
                            'd2', gen_random_uuid(), 10, 1000, NULL, NULL)), 'claimed21');
        PERFORM probe.same(probe.events(a), '');
        PERFORM probe.same(probe.evidence(a), 'claimed not_sent claimed');
    END LOOP;
END $$;

-- Counted once for one claim, and only by its holder.
DO $$
DECLARE
    a text := probe.op(probe.run(11), 'a');
BEGIN
    PERFORM probe.claim(a);
    PERFORM probe.same(probe.not_sent(a, 1, 1, 'forged'), 'missing dispatching');
    PERFORM probe.same(probe.not_sent(a, 1, 1), 'recorded unknown');
    PERFORM probe.same(probe.not_sent(a, 1, 1), 'recorded unknown');
    PERFORM probe.same(probe.state(a), 'unknown a1 n1 r2');
    PERFORM probe.same(probe.claim(a), 'claimed 2/3');
    PERFORM probe.same(probe.not_sent(a, 1, 1), 'late dispatching'); -- the next claim is not its to take back
    PERFORM probe.same(probe.state(a), 'dispatching a2 n1 r3');
    PERFORM probe.same(probe.unknown(a, 3, 2), 'recorded unknown');
    PERFORM probe.same(probe.state(a), 'unknown a2 n1 r4');
    PERFORM probe.same(probe.claim(a), 'not_ready');
    PERFORM probe.same(probe.again(a), 'not_allowed'); -- capability none: final doubt
    PERFORM probe.same(probe.events(a), 'unknown:unanswered');
END $$;

-- first_sent_at: the start of the first attempt that may have been sent.
DO $$
DECLARE
    a text := probe.op(probe.run(12), 'a', 'idempotency_key', 600000);
    t timestamptz;
BEGIN
    PERFORM probe.claim(a);
    PERFORM probe.not_sent(a, 1, 1);
    PERFORM probe.same((SELECT first_sent_at FROM holdfast.tool_operations WHERE operation_id = a), NULL::timestamptz);
    t := clock_timestamp();
    PERFORM probe.claim(a);
    ASSERT (SELECT first_sent_at >= t FROM holdfast.tool_operations WHERE operation_id = a);
    SELECT first_sent_at INTO t FROM holdfast.tool_operations WHERE operation_id = a;
    PERFORM probe.unknown(a, 3, 2);
    PERFORM probe.same(probe.again(a), 'claimed 3/5');
    PERFORM probe.same((SELECT first_sent_at FROM holdfast.tool_operations WHERE operation_id = a), t);
    -- The third was not sent; the second may have been: it stays in doubt, and its retention goes on from there.
    PERFORM probe.same(probe.not_sent(a, 5, 3, 'd2'), 'recorded unknown');
    PERFORM probe.same(probe.state(a), 'unknown a3 n2 r6');
    PERFORM probe.same((SELECT first_sent_at FROM holdfast.tool_operations WHERE operation_id = a), t);
    PERFORM probe.same(probe.claim(a), 'not_ready');
    PERFORM probe.same(probe.again(a), 'claimed 4/7');
    PERFORM probe.same(probe.events(a), 'unknown:unanswered'); -- once, not by every attempt
END $$;

-- Unsent while its run has ended: cancelled in that transaction, published; unless it is detached or a compensation.
DO $$
DECLARE
    r uuid := probe.run(13);
BEGIN
    PERFORM probe.op(r, s) FROM unnest('{a,d,u,x}'::text[]) s;
    UPDATE holdfast.tool_operations SET detached = true WHERE run_id = r AND step_id = 'd';
    UPDATE holdfast.tool_operations SET compensates = 'z', detached = true WHERE run_id = r AND step_id = 'u';
    PERFORM probe.claim('default/' || r || '/' || s || '/1') FROM unnest('{a,d,u,x}'::text[]) s;
    UPDATE holdfast.agent_runs SET status = 'cancelled' WHERE run_id = r;
    PERFORM probe.same((SELECT string_agg(q.item || q.outcome || q.status, ' ' ORDER BY q.item)
        FROM holdfast_v1.record_not_sent(ARRAY['default/' || r || '/a/1', 'default/' || r || '/d/1',
            'default/' || r || '/u/1'], '{d1,d1,d1}', '{1,1,1}', '{1,1,1}', '{0,0,0}', '{NULL,NULL,NULL}') q),
        '1recordedcancelled 2recordedunknown 3recordedunknown');
    PERFORM probe.same(probe.events('default/' || r || '/a/1'), 'cancelled');
    PERFORM probe.same(probe.events('default/' || r || '/d/1'), '');
    -- What may have been sent is never reported as not executed, cancelled or not.
    PERFORM probe.same(probe.unknown('default/' || r || '/x/1', 1, 1), 'recorded unknown');
    PERFORM probe.same(probe.not_sent('default/' || r || '/a/1', 1, 1), 'recorded cancelled'); -- asked again
    PERFORM probe.same(probe.events('default/' || r || '/a/1'), 'cancelled');
END $$;

-- Expiry: dispatching → unknown with its evidence; who dispatched stays known; due again only where a key is safe.
DO $$
DECLARE
    r uuid := probe.run(14);
    v_until timestamptz;
BEGIN
    PERFORM probe.op(r, 'none'), probe.op(r, 'key', 'idempotency_key', 600000), probe.op(r, 'short', 'idempotency_key', 1),
            probe.op(r, 'query', 'query'), probe.op(r, 'alive'), probe.op(r, 'free');
    PERFORM probe.claim('default/' || r || '/' || s || '/1') FROM unnest('{none,key,short,query,alive}'::text[]) s;
    UPDATE holdfast.tool_operations SET dispatch_until = clock_timestamp()
     WHERE run_id = r AND step_id NOT IN ('alive', 'free');
    PERFORM probe.same((SELECT expired FROM holdfast_v1.expire_claims(1)), 1);
    PERFORM probe.same((SELECT expired || ' of ' || cardinality(doubtful) FROM holdfast_v1.expire_claims(1000)), '3 of 3');
    PERFORM probe.same((SELECT expired FROM holdfast_v1.expire_claims(1000)), 0);
    PERFORM probe.same((SELECT doubtful FROM holdfast_v1.expire_claims(1000))::text, '{}');
    PERFORM probe.same((SELECT string_agg(o.step_id || ':' || o.status || coalesce(o.dispatch_owner, '-') || o.revision
                            || CASE WHEN o.status <> 'unknown' THEN '' WHEN o.not_before IS NULL THEN ' never' ELSE ' again' END, ', ' ORDER BY o.step_id)
                          FROM holdfast.tool_operations o WHERE o.run_id = r),
        'alive:dispatchingd11, free:prepared-0, key:unknownd12 again, none:unknownd12 never, query:unknownd12 again, '
        'short:unknownd12 never');
    PERFORM probe.same((SELECT bool_and(o.dispatch_until IS NOT NULL AND o.claimed_revision = 1)
                          FROM holdfast.tool_operations o WHERE o.run_id = r AND o.status = 'unknown'), true);
    PERFORM probe.same(probe.evidence('default/' || r || '/none/1'), 'claimed expired');
    PERFORM probe.same(probe.events('default/' || r || '/none/1'), 'unknown:expired');
    -- The dispatcher that was paused comes back: it did not send after all. Only it can know.
    PERFORM probe.same(probe.not_sent('default/' || r || '/none/1', 1, 1), 'recorded unknown');
    PERFORM probe.same(probe.not_sent('default/' || r || '/none/1', 1, 1), 'recorded unknown');
    PERFORM probe.same(probe.state('default/' || r || '/none/1'), 'unknown a1 n1 r3');
    PERFORM probe.same(probe.claim('default/' || r || '/none/1', 'd2'), 'claimed 2/4');
    -- Or it may have: late, one more piece of evidence.
    PERFORM probe.same(probe.unknown('default/' || r || '/query/1', 1, 1), 'late unknown');
    PERFORM probe.same(probe.evidence('default/' || r || '/query/1'), 'claimed expired late');
    -- A claim that was taken over by a second attempt has no say in it.
    UPDATE holdfast.tool_operations SET not_before = clock_timestamp() WHERE run_id = r AND step_id = 'key';
    PERFORM probe.same(probe.again('default/' || r || '/key/1'), 'claimed 2/3');
    PERFORM probe.same(probe.not_sent('default/' || r || '/key/1', 1, 1), 'late dispatching');
    PERFORM probe.same(probe.unknown('default/' || r || '/key/1', 1, 1), 'late dispatching');
    PERFORM probe.same(probe.state('default/' || r || '/key/1'), 'dispatching a2 n0 r3');
END $$;

-- Same-key retry: capability × retention, in SQL, whatever the caller believes.
DO $$
DECLARE
    r uuid := probe.run(15);
    v_step text;
BEGIN
    PERFORM probe.op(r, 'none', 'none', 600000), probe.op(r, 'id', 'deterministic_id', 600000),
            probe.op(r, 'query', 'query', 600000), probe.op(r, 'forever', 'idempotency_key', NULL),
            probe.op(r, 'key', 'idempotency_key', 600000), probe.op(r, 'old', 'idempotency_key', 600000),
            probe.op(r, 'edge', 'idempotency_key', 600000);
    FOREACH v_step IN ARRAY '{none,id,query,forever,key,old,edge}'::text[] LOOP
        PERFORM probe.claim('default/' || r || '/' || v_step || '/1');
        PERFORM probe.unknown('default/' || r || '/' || v_step || '/1', 1, 1);
    END LOOP;
    UPDATE holdfast.tool_operations SET not_before = clock_timestamp() WHERE run_id = r;
    UPDATE holdfast.tool_operations SET first_sent_at = clock_timestamp() - interval '601 s'
     WHERE run_id = r AND step_id = 'old';
    UPDATE holdfast.tool_operations SET first_sent_at = clock_timestamp() - interval '595 s'
     WHERE run_id = r AND step_id = 'edge';
    PERFORM probe.same(probe.again('default/' || r || '/' || s || '/1', p_ttl_ms => 10000), 'not_allowed')
       FROM unnest('{none,id,query,forever,old,edge}'::text[]) s;
    PERFORM probe.same((SELECT string_agg(step_id, ' ') FROM holdfast_v1.claim_unknown('d2', gen_random_uuid(), 100, 10000,
                                                                                       '{pay,pay}', NULL)), 'key');
    -- The whole term of the claim must lie inside the retention: a shorter one still fits.
    PERFORM probe.same(probe.again('default/' || r || '/edge/1', p_ttl_ms => 1000), 'claimed 2/3');
    PERFORM probe.same(probe.claim('default/' || r || '/none/1'), 'not_ready');
END $$;

DO $$
BEGIN
    PERFORM probe.fails('22023', $q$SELECT * FROM holdfast_v1.record_not_sent('{x,x}', '{d,d}', '{1,1}', '{1,1}', '{1,1}', '{NULL,NULL}')$q$);
    PERFORM probe.fails('22023', $q$SELECT * FROM holdfast_v1.record_unknown('{x}', '{d,d}', '{1}', '{1}', '{1}', '{NULL}')$q$);
    PERFORM probe.fails('22023', $q$SELECT * FROM holdfast_v1.record_unknown('{x}', '{d}', '{1}', '{1}', NULL, '{NULL}')$q$);
    PERFORM probe.fails('22023', $q$SELECT * FROM holdfast_v1.expire_claims(1001)$q$);
    PERFORM probe.fails('22023', $q$SELECT * FROM holdfast_v1.expire_claims(NULL)$q$);
END $$;
