-- record_result: what settles, what is only evidence, what wakes a run.
\ir fixture.inc

-- A success settles once; its answer may be asked again.
DO $$
DECLARE
    a text := probe.op(probe.run(1), 'a');
BEGIN
    PERFORM probe.same(probe.claim(a), 'claimed 1/1');
    PERFORM probe.same(probe.result(a, 1, 1), 'recorded succeeded');
    PERFORM probe.same(probe.state(a), 'succeeded a1 n0 r2');
    PERFORM probe.same((SELECT (remote_id, result, dispatch_owner, dispatch_until)::text FROM holdfast.tool_operations
                         WHERE operation_id = a), ('rem-1', '{"r": 1}'::jsonb, 'd1', NULL::timestamptz)::text);
    PERFORM probe.same(probe.result(a, 1, 1), 'recorded succeeded');
    PERFORM probe.same(probe.state(a), 'succeeded a1 n0 r2');
    PERFORM probe.same(probe.events(a), 'succeeded');
    PERFORM probe.same(probe.evidence(a), 'claimed response');
    PERFORM probe.same((SELECT count(*) FROM holdfast.refusals), 0::bigint);
    PERFORM probe.same((SELECT (e.tenant_id, e.task_id, e.run_id, e.epoch, e.traceparent, e.shard)::text
                          FROM holdfast.outbox_events e),
                       ('default', 't1', probe.uuid(1), 7, 'trace-1', holdfast.shard_of('default', 't1', 8))::text);
    PERFORM probe.same((SELECT e.body -> 'operation' ->> 'status' FROM holdfast.outbox_events e), 'succeeded');
END $$;

-- A refusal is final; the wrong claim, request or operation changes nothing, and is kept.
DO $$
DECLARE
    b text := probe.op(probe.run(2), 'b');
BEGIN
    PERFORM probe.same(probe.claim(b), 'claimed 1/1');
    PERFORM probe.same(probe.result(b, 1, 1, p_digest => 'sha256:other'), 'digest_mismatch dispatching');
    PERFORM probe.same(probe.result(b, 1, 1, p_owner => 'forged'), 'missing dispatching');
    PERFORM probe.same(probe.result(b, 2, 1), 'missing dispatching');
    PERFORM probe.same(probe.result(b, 1, 2), 'missing dispatching');
    PERFORM probe.same(probe.result('nobody', 1, 1), 'missing -');
    PERFORM probe.same(probe.state(b), 'dispatching a1 n0 r1');
    PERFORM probe.same(probe.result(b, 1, 1, 'failed_final'), 'recorded failed_final');
    PERFORM probe.same(probe.events(b), 'failed');
    PERFORM probe.same(probe.evidence(b), 'claimed digest_mismatch unmatched unmatched unmatched response');
    PERFORM probe.same((SELECT string_agg(reason || refused, ' ' ORDER BY reason) FROM holdfast.refusals
                         WHERE run_id = probe.uuid(2) AND verb = 'record_result' AND epoch = 7),
                       'digest_mismatch1 missing3');
END $$;

-- After its claim ran out: late, whatever it says; the operation stays unknown, the evidence is whole.
DO $$
DECLARE
    c text := probe.op(probe.run(3), 'c');
BEGIN
    PERFORM probe.same(probe.claim(c), 'claimed 1/1');
    UPDATE holdfast.tool_operations SET dispatch_until = clock_timestamp() WHERE operation_id = c;
    PERFORM probe.same((SELECT expired FROM holdfast_v1.expire_claims(10)), 1);
    PERFORM probe.same(probe.result(c, 1, 1), 'late unknown');
    PERFORM probe.same(probe.state(c), 'unknown a1 n0 r2');
    PERFORM probe.same(probe.evidence(c), 'claimed expired late');
    PERFORM probe.same((SELECT (e.dispatch_owner, e.attempt, e.dispatch_revision, e.detail -> 'result',
                                e.detail ->> 'verdict', e.detail ->> 'remote_id', e.detail -> 'evidence')::text
                          FROM holdfast.operation_evidence e WHERE e.operation_id = c AND e.kind = 'late'),
                       ('d1', 1, 1, '{"r": 1}'::jsonb, 'succeeded', 'rem-1', '{"http_status": 200}'::jsonb)::text);
    PERFORM probe.same(probe.events(c), 'unknown:expired');
    PERFORM probe.same((SELECT refused FROM holdfast.refusals WHERE run_id = probe.uuid(3) AND reason = 'late'), 1::bigint);
    -- But an answer inside the claim counts although the deadline has passed, as long as nobody took it for unknown.
    c := probe.op(probe.run(4), 'd');
    PERFORM probe.claim(c);
    UPDATE holdfast.tool_operations SET dispatch_until = clock_timestamp() WHERE operation_id = c;
    PERFORM probe.same(probe.result(c, 1, 1), 'recorded succeeded');
END $$;

-- Facts against a settled operation: nothing changes; recorded, published once, counted.
DO $$
DECLARE
    r uuid := probe.run(5);
    a text := probe.op(r, 'a', 'idempotency_key', 60000);
    b text := probe.op(r, 'b', 'idempotency_key', 60000);
    c text := probe.op(r, 'c');
BEGIN
    -- a: attempt 1 in doubt, attempt 2 succeeded as rem-1.
    PERFORM probe.claim(a);
    PERFORM probe.unknown(a, 1, 1);
    PERFORM probe.same(probe.again(a), 'claimed 2/3');
    PERFORM probe.same(probe.result(a, 3, 2, p_owner => 'd2'), 'recorded succeeded');
    PERFORM probe.same(probe.result(a, 1, 1), 'late succeeded');                      -- the same fact
    PERFORM probe.same(probe.result(a, 1, 1, 'failed_final'), 'late succeeded');      -- that attempt alone was refused
    PERFORM probe.same(probe.result(a, 1, 1, p_remote => 'rem-2'), 'contradiction succeeded'); -- two resources
    PERFORM probe.same(probe.result(a, 1, 1, p_remote => 'rem-2'), 'contradiction succeeded'); -- delivered again
    PERFORM probe.same(probe.result(a, 3, 2, 'failed_final', 'd2'), 'contradiction succeeded');
    PERFORM probe.same(probe.events(a), 'unknown:unanswered succeeded contradiction contradiction');
    PERFORM probe.same(probe.state(a), 'succeeded a2 n0 r4');
    PERFORM probe.same((SELECT remote_id FROM holdfast.tool_operations WHERE operation_id = a), 'rem-1');
    -- b: failed for good, and then a success of it.
    PERFORM probe.claim(b);
    PERFORM probe.same(probe.result(b, 1, 1, 'failed_final'), 'recorded failed_final');
    PERFORM probe.same(probe.result(b, 1, 1), 'contradiction failed_final');
    PERFORM probe.same(probe.events(b), 'failed contradiction');
    PERFORM probe.same((SELECT e.body -> 'operation' -> 'detail' ->> 'verdict' FROM holdfast.outbox_events e
                         WHERE e.type = 'operation.contradiction' AND e.body -> 'operation' ->> 'operation_id' = b),
                       'succeeded');
    -- c: never sent they said, cancelled, and then a success.
    PERFORM probe.claim(c);
    PERFORM probe.not_sent(c, 1, 1);
    UPDATE holdfast.tool_operations SET status = 'cancelled' WHERE operation_id = c;
    PERFORM probe.same(probe.result(c, 1, 1, 'failed_final'), 'late cancelled');
    PERFORM probe.same(probe.result(c, 1, 1), 'contradiction cancelled');
    PERFORM probe.same(probe.events(c), 'contradiction');
    PERFORM probe.same((SELECT sum(refused) FROM holdfast.refusals WHERE run_id = r AND reason = 'contradiction')::bigint,
                       5::bigint);
END $$;

-- A refusal settles nothing while another attempt may have acted: unknown, with the answer as evidence.
DO $$
DECLARE
    a text := probe.op(probe.run(6), 'a', 'idempotency_key', 60000);
BEGIN
    PERFORM probe.claim(a);
    PERFORM probe.unknown(a, 1, 1);
    PERFORM probe.same(probe.again(a), 'claimed 2/3');
    PERFORM probe.same(probe.result(a, 3, 2, 'failed_final', 'd2'), 'evidence_only unknown');
    PERFORM probe.same(probe.result(a, 3, 2, 'failed_final', 'd2'), 'evidence_only unknown');
    PERFORM probe.same(probe.state(a), 'unknown a2 n0 r4');
    PERFORM probe.same(probe.evidence(a), 'claimed unknown claimed response');
    PERFORM probe.same(probe.events(a), 'unknown:unanswered');
    -- With the first attempt known as not sent the refusal is final.
    a := probe.op(probe.run(7), 'b');
    PERFORM probe.claim(a);
    PERFORM probe.not_sent(a, 1, 1);
    PERFORM probe.same(probe.claim(a), 'claimed 2/3');
    PERFORM probe.same(probe.result(a, 3, 2, 'failed_final'), 'recorded failed_final');
END $$;

-- Several results of one run in one call: judged together, the run wakes once, and both items say so.
DO $$
DECLARE
    r uuid := probe.run(8);
    o uuid := probe.run(9);
    a text := probe.op(r, 'a');
    b text := probe.op(r, 'b');
    c text := probe.op(o, 'c');
    d text := probe.op(o, 'd');
    x record;
BEGIN
    PERFORM probe.park(r, 'all', ARRAY[a, b]), probe.park(o, 'all', ARRAY[c, d]);
    PERFORM probe.claim(i) FROM unnest(ARRAY[a, b, c, d]) i;
    SELECT string_agg(q.item || q.outcome || q.woke || q.epoch, ' ' ORDER BY q.item) AS said INTO x
      FROM holdfast_v1.record_result(ARRAY[b, 'nobody', c, a], '{d1,d1,d1,d1}', '{1,1,1,1}', '{1,1,1,1}',
           '{sha256:b,x,sha256:c,sha256:a}', '{succeeded,succeeded,succeeded,failed_final}', '{1,2,3,NULL}',
           '{NULL,NULL,NULL,NULL}', '{NULL,NULL,NULL,NULL}') q;
    PERFORM probe.same((SELECT string_agg(q.item || q.outcome || q.woke, ' ' ORDER BY q.item)
        FROM holdfast_v1.record_result(ARRAY[b], '{d1}', '{1}', '{1}', '{sha256:b}', '{succeeded}', '{1}', '{NULL}',
                                       '{NULL}') q), '1recordedtrue'); -- asked again: the hint may have been lost
    PERFORM probe.same(x.said, '1recordedtrue7 3recordedfalse7 4recordedtrue7');
    PERFORM probe.same((SELECT string_agg(run_id::text, ' ') FROM holdfast.ready), r::text);
    PERFORM probe.same((SELECT woke_reason FROM holdfast.agent_runs WHERE run_id = r), 'operations');
    PERFORM probe.same((SELECT woke_reason FROM holdfast.agent_runs WHERE run_id = o), NULL::text);
    PERFORM probe.same((SELECT string_agg(replace(e.type, 'operation.', ''), ' ' ORDER BY e.seq)
                          FROM holdfast.outbox_events e WHERE e.run_id = r), 'succeeded failed');
    PERFORM probe.same((SELECT q.woke::text FROM holdfast_v1.record_result(ARRAY[d], '{d1}', '{1}', '{1}',
        '{sha256:d}', '{succeeded}', '{1}', '{NULL}', '{NULL}') q), 'true');
END $$;

-- What is a bug of the caller.
DO $$
DECLARE
    v_call constant text := 'SELECT * FROM holdfast_v1.record_result(%s)';
BEGIN
    PERFORM probe.fails('22023', format(v_call, a)) FROM unnest(ARRAY[
        $a$'{x,x}', '{d,d}', '{1,1}', '{1,1}', '{y,y}', '{succeeded,succeeded}', '{r,r}', '{NULL,NULL}', '{NULL,NULL}'$a$,
        $a$'{x}', '{d,d}', '{1}', '{1}', '{y}', '{succeeded}', '{r}', '{NULL}', '{NULL}'$a$,
        $a$'{x}', '{d}', '{1}', '{1}', '{y}', '{unknown}', '{r}', '{NULL}', '{NULL}'$a$,
        $a$'{x}', '{d}', '{1}', '{1}', '{y}', '{NULL}', '{r}', '{NULL}', '{NULL}'$a$,
        $a$'{x}', '{d}', '{1}', '{1}', '{y}', '{succeeded}', '{r}', NULL, '{NULL}'$a$,
        $a$array_fill('x'::text, '{1001}'), array_fill('x'::text, '{1001}'), array_fill(1::bigint, '{1001}'),
           array_fill(1, '{1001}'), array_fill('x'::text, '{1001}'), array_fill('succeeded'::text, '{1001}'),
           array_fill('x'::text, '{1001}'), array_fill(NULL::jsonb, '{1001}'), array_fill(NULL::jsonb, '{1001}')$a$,
        $a$'{x}', '{d}', '{1}', '{1}', '{y}', '{succeeded}', '{r}', ARRAY[to_jsonb(repeat('x', 900001))], '{NULL}'$a$]) a;
    PERFORM probe.same((SELECT count(*) FROM holdfast_v1.record_result('{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')),
                       0::bigint);
    PERFORM probe.same((SELECT outcome FROM holdfast_v1.record_result('{NULL}', '{d}', '{1}', '{1}', '{y}',
                        '{succeeded}', '{r}', '{NULL}', '{NULL}')), 'missing');
END $$;
