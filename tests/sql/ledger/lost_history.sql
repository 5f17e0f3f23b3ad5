-- Between a promotion and the opening of the gate: whatever would take an operation for not sent, doubts it instead. Then
-- what opening does to claims that are going on and to operations in doubt. (Holes A and B of the model.)
\ir fixture.inc

-- Here the lost history is one that control knows and the server is not on.
CREATE FUNCTION probe.promoted() RETURNS void LANGUAGE sql AS $$ UPDATE holdfast.control SET timeline = timeline + 1 $$;
CREATE FUNCTION probe.opened(p_nothing_lost boolean DEFAULT false) RETURNS text LANGUAGE sql AS $$
    SELECT outcome || ' ' || epochs_raised || ' ' || operations_doubted
      FROM holdfast_v1.gate_open('ann', 'looked', p_nothing_lost => p_nothing_lost) $$;
CREATE FUNCTION probe.cancel(p_n integer) RETURNS text LANGUAGE sql AS $$
    SELECT outcome FROM holdfast_v1.cancel(ARRAY['default'], ARRAY['t' || p_n], ARRAY['k' || p_n], ARRAY[true], ARRAY['d'],
        ARRAY['test'], ARRAY['ann'], ARRAY[NULL::uuid], ARRAY['no'], ARRAY[NULL::jsonb]) $$;
-- A commit of the holder 'pod' at epoch 7: an end, and at most one intent.
CREATE FUNCTION probe.commit(p_run uuid, p_finish text, p_version integer DEFAULT NULL, p_after boolean DEFAULT false,
                             p_step text DEFAULT 'a') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_n integer := (p_version IS NOT NULL)::integer;
    v_id text := 'default/' || p_run || '/' || p_step || '/' || p_version;
BEGIN
    RETURN (SELECT outcome FROM holdfast_v1.commit(ARRAY[p_run], ARRAY['pod'], ARRAY[7::bigint],
        (SELECT array_agg(revision) FROM holdfast.agent_runs WHERE run_id = p_run), ARRAY[gen_random_uuid()], ARRAY['d'],
        ARRAY[NULL::jsonb], ARRAY[p_finish], ARRAY['{}'::jsonb], ARRAY[false], ARRAY[NULL::text], ARRAY[NULL::text],
        ARRAY[NULL::timestamptz], ARRAY[NULL::bigint],
        array_fill(1, ARRAY[v_n]), array_fill(v_id, ARRAY[v_n]), array_fill(p_step, ARRAY[v_n]),
        array_fill(p_version, ARRAY[v_n]), array_fill('pay'::text, ARRAY[v_n]), array_fill('sha256:new'::text, ARRAY[v_n]),
        array_fill('{"a":2}'::jsonb, ARRAY[v_n]), array_fill('none'::text, ARRAY[v_n]), array_fill('{}'::jsonb, ARRAY[v_n]),
        array_fill(v_id, ARRAY[v_n]), array_fill(p_after, ARRAY[v_n]), array_fill(NULL::text, ARRAY[v_n]),
        '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'));
END $$;
CREATE FUNCTION probe.held(p_n integer) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
    r uuid := probe.run(p_n);
BEGIN
    UPDATE holdfast.worker_leases SET owner = 'pod', expires_at = clock_timestamp() + interval '1 hour' WHERE run_id = r;
    UPDATE holdfast.agent_tasks SET active_run_id = r WHERE task_id = 't' || p_n;
    RETURN r;
END $$;
CREATE FUNCTION probe.unsent(p_id text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM probe.same(probe.claim(p_id), 'claimed 1/1');
    PERFORM probe.same(probe.not_sent(p_id, 1, 1), 'recorded unknown');
END $$;

-- On the known history: what these functions do as long as nothing can have been lost. Each line has its twin below.
DO $$
DECLARE
    r uuid := probe.held(1); a text := probe.op(r, 'a'); b text := probe.op(r, 'b');
    s uuid := probe.held(2); c text := probe.op(s, 'a');
BEGIN
    PERFORM probe.unsent(b);
    PERFORM probe.same(probe.cancel(1), 'cancelled');
    PERFORM probe.same(probe.state(a) || ' ' || probe.state(b), 'cancelled a0 n0 r1 cancelled a1 n1 r3');
    PERFORM probe.same(probe.commit(s, NULL, 2), 'ok');
    PERFORM probe.same(probe.state(c), 'cancelled a0 n0 r1');
END $$;

-- A. Promoted, and nobody has opened the gate.
DO $$
DECLARE
    r uuid := probe.held(11); a text := probe.op(r, 'a'); b text := probe.op(r, 'b');
    s uuid := probe.held(12); c text := probe.op(s, 'a');
    u uuid := probe.held(13); d text := probe.op(u, 'a');
    v uuid := probe.held(14); e text := probe.op(v, 'a');
BEGIN
    PERFORM probe.unsent(b);
    PERFORM probe.promoted();
    -- cancel
    PERFORM probe.same(probe.cancel(11), 'cancelled');
    PERFORM probe.same(probe.state(a) || ' ' || probe.state(b), 'unknown a1 n0 r1 unknown a2 n1 r3');
    PERFORM probe.same(probe.evidence(a) || ', ' || probe.evidence(b), 'lost_history, claimed not_sent lost_history');
    PERFORM probe.same(probe.events(a) || ', ' || probe.events(b), 'unknown:lost_history, unknown:lost_history');
    -- commit: a failed end; a higher version of what may have been sent
    PERFORM probe.same(probe.commit(s, 'failed'), 'ok');
    PERFORM probe.same(probe.state(c), 'unknown a1 n0 r1');
    PERFORM probe.same(probe.commit(u, NULL, 2), 'effect_in_doubt');
    PERFORM probe.same(probe.state(d), 'prepared a0 n0 r0');
    PERFORM probe.same(probe.commit(u, NULL, 2, true), 'ok');
    PERFORM probe.same(probe.state(d), 'unknown a1 n0 r1');
    PERFORM probe.same((SELECT after_operation FROM holdfast.tool_operations WHERE step_id = 'a' AND effect_version = 2
                           AND run_id = u), d);
    -- A person cannot take it back either.
    PERFORM probe.same((SELECT outcome FROM holdfast_v1.cancel_operation(ARRAY[e], ARRAY[0::bigint], ARRAY['ann'], ARRAY['no'])),
                       'not_allowed');
    PERFORM probe.same(probe.state(e), 'prepared a0 n0 r0');
    -- The remote did act in the lost history, and says so: that settles what would have been called cancelled.
    PERFORM probe.same((SELECT outcome || status FROM holdfast_v1.converge(ARRAY[a], ARRAY[NULL::integer], ARRAY[NULL::text],
        ARRAY['sha256:a'], ARRAY['succeeded'], ARRAY['rem'], ARRAY['{}'::jsonb], ARRAY['{}'::jsonb], ARRAY['ann'])),
        'settledsucceeded');
    -- Opened by one who states that nothing was lost: what was doubted stays in doubt, the rest is not touched.
    PERFORM probe.same(probe.opened(true), 'ok 0 0');
    PERFORM probe.same(probe.state(e) || ' ' || probe.state(c), 'prepared a0 n0 r0 unknown a1 n0 r1');
    PERFORM probe.same(probe.cancel(14), 'cancelled');
    PERFORM probe.same(probe.state(e), 'cancelled a0 n0 r1');
END $$;

-- A, records: "not sent" and a refusal speak of one claim, not of what the lost history did.
DO $$
DECLARE
    r uuid := probe.run(21); a text := probe.op(r, 'a'); b text := probe.op(r, 'b'); c text := probe.op(r, 'c');
    d text := probe.op(r, 'd'); e text := probe.op(r, 'e');
BEGIN
    PERFORM probe.same(probe.claim(x), 'claimed 1/1') FROM unnest(ARRAY[a, b, c, d, e]) x;
    PERFORM probe.promoted();
    PERFORM probe.same(probe.not_sent(a, 1, 1), 'recorded unknown');
    PERFORM probe.same(probe.state(a), 'unknown a2 n1 r2');
    PERFORM probe.same(probe.events(a), 'unknown:lost_history');
    PERFORM probe.same(probe.not_sent(a, 1, 1), 'recorded unknown'); -- once more: the same, counted once
    PERFORM probe.same(probe.state(a) || ' ' || probe.evidence(a), 'unknown a2 n1 r2 claimed lost_history not_sent');
    PERFORM probe.same(probe.result(b, 1, 1, 'failed_final'), 'evidence_only unknown');
    PERFORM probe.same(probe.state(b), 'unknown a2 n0 r2');
    PERFORM probe.same(probe.events(b), 'unknown:lost_history');
    PERFORM probe.same(probe.result(b, 1, 1, 'failed_final'), 'evidence_only unknown');
    PERFORM probe.same(probe.result(c, 1, 1), 'recorded succeeded');
    PERFORM probe.same(probe.unknown(d, 1, 1), 'recorded unknown');
    PERFORM probe.same((SELECT outcome || status FROM holdfast_v1.converge(ARRAY[e], ARRAY[1], ARRAY['d1'],
        ARRAY['sha256:e'], ARRAY['failed_final'], ARRAY['rem'], ARRAY['{}'::jsonb], ARRAY['{}'::jsonb], ARRAY['ann'])),
        'evidence_onlydispatching');
    PERFORM probe.opened();
    PERFORM probe.same(concat_ws(', ', probe.state(c), probe.state(d), probe.state(e)),
                       'succeeded a1 n0 r2, unknown a2 n0 r3, dispatching a2 n0 r1');
END $$;

-- B. Opening: one more possible attempt of everything that is not settled.
DO $$
DECLARE
    r uuid := probe.run(31); a text := probe.op(r, 'a'); b text := probe.op(r, 'b'); c text := probe.op(r, 'c');
    d text := probe.op(r, 'd', 'idempotency_key', 600000); e text := probe.op(r, 'e'); f text := probe.op(r, 'f');
BEGIN
    PERFORM probe.same(probe.claim(x), 'claimed 1/1') FROM unnest(ARRAY[a, b, c, d, e, f]) x;
    PERFORM probe.same(probe.unknown(d, 1, 1), 'recorded unknown');
    PERFORM probe.same(probe.unknown(e, 1, 1), 'recorded unknown');
    PERFORM probe.promoted();
    PERFORM probe.same(substr(probe.opened(), 6), (SELECT count(*) FROM holdfast.tool_operations
                                                    WHERE status IN ('prepared', 'dispatching', 'unknown'))::text);
    -- Claims that are going on stay, and a success of theirs is their success.
    PERFORM probe.same(probe.state(a), 'dispatching a2 n0 r1');
    PERFORM probe.same(probe.result(a, 1, 1), 'recorded succeeded');
    -- "Not sent" takes back its own attempt, and the one that was lost stays; said twice, it does not take back that.
    PERFORM probe.same(probe.not_sent(b, 1, 1), 'recorded unknown');
    PERFORM probe.same(probe.not_sent(b, 1, 1), 'recorded unknown');
    PERFORM probe.same(probe.state(b), 'unknown a2 n1 r2');
    PERFORM probe.same(probe.claim(b), 'not_ready');
    -- The same when its first saying was lost with that history: only the lost attempt could be left, or this one.
    PERFORM probe.same(probe.not_sent(e, 1, 1), 'late unknown');
    PERFORM probe.same(probe.state(e), 'unknown a2 n0 r3');
    -- A refusal: the lost attempt may have acted.
    PERFORM probe.same(probe.result(c, 1, 1, 'failed_final'), 'evidence_only unknown');
    PERFORM probe.same(probe.events(c), 'unknown:lost_history');
    -- A claim that runs out is named by its own number.
    UPDATE holdfast.tool_operations SET dispatch_until = clock_timestamp() WHERE operation_id = f;
    PERFORM probe.same((SELECT expired FROM holdfast_v1.expire_claims(10)), 1);
    PERFORM probe.same((SELECT attempt FROM holdfast.operation_evidence WHERE operation_id = f AND kind = 'expired'), 1);
    PERFORM probe.same(probe.events(f), 'unknown:expired');
    PERFORM probe.same(probe.result(f, 1, 1), 'late unknown');
    -- The next claim has a number of its own.
    UPDATE holdfast.tool_operations SET not_before = clock_timestamp() WHERE operation_id = d;
    PERFORM probe.same(probe.again(d), 'claimed 3/4');
    PERFORM probe.same(probe.result(d, 4, 2, 'succeeded', 'd2'), 'missing dispatching');
    PERFORM probe.same(probe.result(d, 4, 3, 'succeeded', 'd2'), 'recorded succeeded');
END $$;

-- A token asked again after the opening answers the claim as it was given.
DO $$
DECLARE
    a text := probe.op(probe.run(41), 'a');
    k uuid := gen_random_uuid();
BEGIN
    PERFORM holdfast_v1.claim_operations('d1', k, 1, 30000, NULL, ARRAY[a]);
    PERFORM probe.promoted();
    PERFORM probe.opened();
    PERFORM probe.same((SELECT outcome || ' ' || attempt || '/' || revision
                          FROM holdfast_v1.claim_operations('d1', k, 1, 30000, NULL, ARRAY[a])), 'claimed 1/1');
END $$;

-- C. Two histories give out claims with the same revision and attempt; only the owner, new with every claim, tells them apart.
DO $$
DECLARE
    a text := probe.op(probe.run(51), 'a');
BEGIN
    PERFORM probe.same(probe.claim(a, 'pod/session/claim-2'), 'claimed 1/1'); -- the lost one was pod/session/claim-1
    PERFORM probe.same(probe.not_sent(a, 1, 1, 'pod/session/claim-1'), 'missing dispatching');
    PERFORM probe.same(probe.result(a, 1, 1, 'failed_final', 'pod/session/claim-1'), 'missing dispatching');
    PERFORM probe.same(probe.state(a), 'dispatching a1 n0 r1');
END $$;

-- Which histories are in doubt: none in strict mode after a promotion; every one after a restore, by hand or found by a relay.
DO $$
DECLARE
    a text := probe.op(probe.held(61), 'a');
BEGIN
    PERFORM probe.same(holdfast.history_in_doubt(), false);
    PERFORM probe.promoted();
    PERFORM probe.same(holdfast.history_in_doubt(), true);
    UPDATE holdfast.control SET failover_mode = 'strict';
    PERFORM probe.same(holdfast.history_in_doubt(), false);
    UPDATE holdfast.control SET system_identifier = system_identifier + 1;
    PERFORM probe.same(holdfast.history_in_doubt(), true);
    UPDATE holdfast.control SET system_identifier = system_identifier - 1, timeline = timeline - 1, failover_mode = 'async';
    PERFORM holdfast_v1.gate_close('ann', 'maintenance');
    PERFORM probe.same(holdfast.history_in_doubt(), false);
    PERFORM holdfast_v1.gate_close('relay', 'Kafka remembers more', p_set_back => true);
    PERFORM probe.same(holdfast.history_in_doubt(), true);
    PERFORM probe.same((SELECT reason FROM holdfast_v1.gate_status()), 'maintenance');
    PERFORM probe.same(probe.cancel(61), 'cancelled');
    PERFORM probe.same(probe.state(a), 'unknown a1 n0 r1');
    PERFORM probe.opened();
    PERFORM probe.same(holdfast.history_in_doubt(), false);
END $$;

-- Until when claims can still send that a promotion lost: nobody here knows them, so the largest term from when it was seen.
DO $$
DECLARE
    t timestamptz;
BEGIN
    UPDATE holdfast.tool_operations SET dispatch_until = clock_timestamp() - interval '1 day';
    UPDATE holdfast.control SET max_claim_ttl_ms = 40000, lost_claims_until = NULL;
    PERFORM probe.same((SELECT sendable_until < clock_timestamp() FROM holdfast_v1.gate_status()), true);
    PERFORM probe.promoted();
    -- Not noticed by anybody yet: it counts from now, whenever that is.
    PERFORM probe.same((SELECT sendable_until BETWEEN clock_timestamp() + interval '35 s' AND clock_timestamp() + interval '40 s'
                          FROM holdfast_v1.gate_status()), true);
    t := (SELECT sendable_until FROM holdfast_v1.gate_close('ann', 'failover'));
    PERFORM probe.same((SELECT c.lost_claims_until = t AND t = c.foreign_since + interval '40 s' FROM holdfast.control c), true);
    PERFORM probe.same((SELECT sendable_until FROM holdfast_v1.gate_close('ann', 'again')), t); -- it does not move
    PERFORM probe.same((SELECT sendable_until FROM holdfast_v1.gate_status()), t);
    PERFORM probe.opened();
    PERFORM probe.same((SELECT sendable_until FROM holdfast_v1.gate_status()), t); -- nor is it forgotten by opening early
    UPDATE holdfast.control SET lost_claims_until = clock_timestamp();
    PERFORM probe.same((SELECT sendable_until < clock_timestamp() FROM holdfast_v1.gate_status()), true);
END $$;
