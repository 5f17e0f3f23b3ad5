-- The gate: closed by hand, by another identity, by a strict mode that is not kept; what opening does to a lost history.
\ir fixture.inc

CREATE FUNCTION probe.gate() RETURNS text LANGUAGE sql AS $$
    SELECT open || coalesce(' ' || reason, '') FROM holdfast_v1.gate_status() $$;
CREATE FUNCTION probe.try(p_i integer) RETURNS text LANGUAGE sql AS $$ -- all gated functions of the ledger
    SELECT string_agg(outcome, ' ') FROM (
        SELECT outcome FROM holdfast_v1.claim_operations('d', gen_random_uuid(), 1, 1000, NULL, ARRAY['x'])
        UNION ALL SELECT outcome FROM holdfast_v1.claim_unknown('d', gen_random_uuid(), 1, 1000, NULL, ARRAY['x'])) q
     WHERE p_i > 0 $$;

DO $$
DECLARE
    a text := probe.op(probe.run(1), 'a');
    c record;
BEGIN
    PERFORM probe.same(probe.gate(), 'true');
    PERFORM probe.same((SELECT system_identifier = known_system AND timeline = known_timeline AND mode = 'async'
                          FROM holdfast_v1.gate_status()), true);
    PERFORM probe.claim(a);
    -- Closing tells until when claims given out can still send.
    SELECT * INTO c FROM holdfast_v1.gate_close('relay of pod 3', 'Kafka remembers more');
    PERFORM probe.same(c.sendable_until, (SELECT dispatch_until FROM holdfast.tool_operations WHERE operation_id = a));
    PERFORM probe.same(probe.gate(), 'false Kafka remembers more');
    PERFORM holdfast_v1.gate_close('another', 'me too');
    PERFORM probe.same(probe.gate(), 'false Kafka remembers more');
    PERFORM probe.same(probe.try(1), 'gate_closed gate_closed');
    -- What goes on while it is closed.
    PERFORM probe.same(probe.result(a, 1, 1), 'recorded succeeded');
    PERFORM probe.same((SELECT expired FROM holdfast_v1.expire_claims(10)), 0);
    PERFORM probe.same((SELECT outcome || coalesce(reason, '') || epochs_raised || operations_doubted
                          FROM holdfast_v1.gate_open('ann', 'looked at it')), 'ok00');
    PERFORM probe.same(probe.gate(), 'true');
    PERFORM probe.same(probe.try(1), 'missing missing');
    PERFORM probe.same((SELECT string_agg(act || ':' || by_whom, ', ' ORDER BY log_id) FROM holdfast.gate_log),
                       'close:relay of pod 3, close:another, open:ann');
    PERFORM probe.fails('22023', q) FROM unnest(ARRAY[
        'SELECT * FROM holdfast_v1.gate_close('''', ''x'')', 'SELECT * FROM holdfast_v1.gate_close(''x'', NULL)',
        'SELECT * FROM holdfast_v1.gate_open(''x'', '' '')', 'SELECT * FROM holdfast_v1.gate_open(NULL, ''x'')']) q;
END $$;

-- Another timeline or system than the known one: closed by itself, before anybody noticed.
DO $$
BEGIN
    UPDATE holdfast.control SET timeline = timeline + 1;
    PERFORM probe.same(probe.gate(), 'false other_timeline');
    PERFORM probe.same(probe.try(1), 'gate_closed gate_closed');
    UPDATE holdfast.control SET timeline = timeline - 1, system_identifier = system_identifier + 1;
    PERFORM probe.same(probe.gate(), 'false other_system');
    PERFORM probe.same(probe.try(1), 'gate_closed gate_closed');
END $$;

-- Opening it then (async): what was never sent may have been sent in the history that is lost; epochs jump.
DO $$
DECLARE
    r uuid := probe.run(2);
    e uuid := probe.run(3);
    o record;
BEGIN
    PERFORM probe.op(r, 'prepared'), probe.op(r, 'key', 'idempotency_key', 600000),
            probe.op(r, 'spent', 'idempotency_key', 1), probe.op(r, 'done'), probe.op(e, 'ended');
    UPDATE holdfast.agent_runs SET status = 'cancelled' WHERE run_id = e;
    UPDATE holdfast.tool_operations SET status = 'cancelled' WHERE step_id IN ('done', 'ended');
    UPDATE holdfast.worker_leases SET owner = 'pod', expires_at = clock_timestamp() + interval '1 hour' WHERE run_id = r;
    SELECT * INTO o FROM holdfast_v1.gate_open('ann', 'promoted the standby');
    PERFORM probe.same((o.outcome, o.epochs_raised, o.operations_doubted)::text, ('ok', 2, 3)::text);
    PERFORM probe.same(probe.gate(), 'true');
    PERFORM probe.same((SELECT epoch FROM holdfast.worker_leases WHERE run_id = r), 1000007::bigint);
    PERFORM probe.same((SELECT epoch FROM holdfast.worker_leases WHERE run_id = e), 7::bigint);
    PERFORM probe.same(probe.state('default/' || r || '/prepared/1'), 'unknown a1 n0 r1');
    PERFORM probe.same(probe.evidence('default/' || r || '/prepared/1'), 'lost_history');
    PERFORM probe.same(probe.events('default/' || r || '/prepared/1'), 'unknown:lost_history');
    PERFORM probe.same(probe.claim('default/' || r || '/prepared/1'), 'not_ready');
    PERFORM probe.same(probe.again('default/' || r || '/prepared/1'), 'not_allowed');
    PERFORM probe.same(probe.state('default/' || r || '/done/1'), 'cancelled a0 n0 r0');
    -- A key is safe while its retention, counted from the registration, lasts.
    UPDATE holdfast.tool_operations SET not_before = clock_timestamp() WHERE step_id IN ('key', 'spent');
    PERFORM probe.same(probe.again('default/' || r || '/key/1'), 'claimed 2/2');
    PERFORM probe.same(probe.again('default/' || r || '/spent/1'), 'not_allowed');
    -- A dispatcher of the lost history comes back with its answer: that claim is not in this history. Kept all the same.
    PERFORM probe.same(probe.result('default/' || r || '/prepared/1', 1, 1), 'missing unknown');
    PERFORM probe.same(probe.not_sent('default/' || r || '/prepared/1', 1, 1), 'missing unknown');
    PERFORM probe.same(probe.evidence('default/' || r || '/prepared/1'), 'lost_history unmatched unmatched');
    PERFORM probe.same((SELECT detail ->> 'operations_doubted' FROM holdfast.gate_log ORDER BY log_id DESC LIMIT 1), '3');
END $$;

-- Unsent ones too; a backup of the same system; and the operator who knows that nothing was lost.
DO $$
DECLARE
    r uuid := probe.run(4);
    a text := probe.op(r, 'a');
BEGIN
    PERFORM probe.claim(a);
    PERFORM probe.not_sent(a, 1, 1);
    UPDATE holdfast.control SET timeline = timeline + 1;
    PERFORM probe.same((SELECT outcome || epochs_raised || operations_doubted
                          FROM holdfast_v1.gate_open('ann', 'synchronous so far', p_nothing_lost => true)), 'ok00');
    PERFORM probe.same(probe.state(a), 'unknown a1 n1 r2');
    PERFORM probe.same((SELECT outcome || operations_doubted
                          FROM holdfast_v1.gate_open('ann', 'restored last night', p_restored => true)), 'ok4'); -- with those of above
    PERFORM probe.same(probe.state(a), 'unknown a2 n1 r3');
    PERFORM probe.same(probe.evidence(a), 'claimed not_sent lost_history');
    PERFORM probe.same((SELECT epoch FROM holdfast.worker_leases WHERE run_id = r), 1000007::bigint);
END $$;

-- strict: the transaction that asks must be committed synchronously, or the gate is shut, and cannot be opened.
DO $$
BEGIN
    UPDATE holdfast.control SET failover_mode = 'strict';
    PERFORM probe.same(probe.gate(), 'false no_synchronous_standby');
    PERFORM probe.same((SELECT outcome || ' ' || reason FROM holdfast_v1.gate_open('ann', 'please')),
                       'not_allowed no_synchronous_standby');
    PERFORM probe.same(probe.try(1), 'gate_closed gate_closed'); -- does not wait for a standby, nor does what follows
    PERFORM set_config('synchronous_commit', 'local', true);
    PERFORM probe.same(probe.gate(), 'false not_synchronous');
    PERFORM probe.same(probe.try(1), 'gate_closed gate_closed');
END $$;
