-- Service leases: one holder at a time, by the database's clock; terms that only grow.
\ir fixture.inc

CREATE FUNCTION probe.acq(p_owner text, p_name text DEFAULT 'sweep') RETURNS text LANGUAGE sql AS $$
    SELECT outcome || ' ' || epoch FROM holdfast_v1.service_acquire(p_name, p_owner, 2000) $$;
CREATE FUNCTION probe.run_out(p_name text DEFAULT 'sweep') RETURNS void LANGUAGE sql AS $$
    UPDATE holdfast.service_leases SET expires_at = clock_timestamp() WHERE name = p_name $$;

DO $$
DECLARE
    t timestamptz;
BEGIN
    PERFORM probe.same(probe.acq('a'), 'acquired 1');
    SELECT expires_at INTO t FROM holdfast.service_leases WHERE name = 'sweep';
    PERFORM probe.same(probe.acq('a'), 'acquired 1'); -- its answer was lost: the same term, nothing extended
    PERFORM probe.same((SELECT expires_at FROM holdfast.service_leases WHERE name = 'sweep'), t);
    PERFORM probe.same(probe.acq('b'), 'held 1');
    PERFORM probe.same((SELECT outcome FROM holdfast_v1.service_renew('sweep', 'b', 1, 2000)), 'lost');
    PERFORM probe.same((SELECT outcome FROM holdfast_v1.service_renew('sweep', 'a', 2, 2000)), 'lost');
    PERFORM probe.same((SELECT outcome FROM holdfast_v1.service_release('sweep', 'b', 1)), 'not_holder');
    PERFORM probe.same((SELECT outcome || ' ' || epoch FROM holdfast_v1.service_renew('sweep', 'a', 1, 2000)), 'renewed 1');
    ASSERT (SELECT expires_at > t FROM holdfast.service_leases WHERE name = 'sweep');

    -- Run out: never revived, the successor has a higher term, the old holder disturbs nothing.
    PERFORM probe.run_out();
    PERFORM probe.same((SELECT outcome || ' ' || epoch FROM holdfast_v1.service_renew('sweep', 'a', 1, 2000)), 'lost 1');
    PERFORM probe.same(probe.acq('b'), 'acquired 2');
    PERFORM probe.same((SELECT outcome || ' ' || epoch FROM holdfast_v1.service_renew('sweep', 'a', 1, 2000)), 'lost 2');
    PERFORM probe.same((SELECT outcome FROM holdfast_v1.service_release('sweep', 'a', 1)), 'not_holder');
    PERFORM probe.same(probe.acq('a'), 'held 2');

    -- Given back: the term stays counted, also for the same owner.
    PERFORM probe.same((SELECT outcome FROM holdfast_v1.service_release('sweep', 'b', 2)), 'released');
    PERFORM probe.same((SELECT outcome FROM holdfast_v1.service_release('sweep', 'b', 2)), 'not_holder');
    PERFORM probe.same(probe.acq('b'), 'acquired 3');
    PERFORM probe.run_out();
    PERFORM probe.same(probe.acq('b'), 'acquired 4');

    PERFORM probe.same(probe.acq('a', 'shard:0') || probe.acq('a', 'shard:7'), 'acquired 1acquired 1');
    PERFORM probe.fails('22023', format('SELECT * FROM holdfast_v1.service_acquire(%s)', a)) FROM unnest(ARRAY[
        $a$'shard:8', 'a', 1000$a$, $a$'shard:-1', 'a', 1000$a$, $a$'shard:01', 'a', 1000$a$, $a$'shard:', 'a', 1000$a$,
        $a$'other', 'a', 1000$a$, $a$NULL, 'a', 1000$a$, $a$'sweep', '', 1000$a$, $a$'sweep', NULL, 1000$a$,
        $a$'sweep', 'a', 0$a$, $a$'sweep', 'a', -5$a$, $a$'sweep', 'a', 2001$a$]) a;
    PERFORM probe.fails('22023', $a$SELECT * FROM holdfast_v1.service_renew('sweep', 'a', 1, 2001)$a$);
END $$;
SELECT probe.fails('22023', $a$SELECT * FROM holdfast_v1.service_acquire('sweep', 'a', NULL)$a$);
SELECT probe.fails('22023', $a$SELECT * FROM holdfast_v1.service_renew('sweep', 'a', 1, NULL)$a$);
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT probe.fails('25001', $$SELECT * FROM holdfast_v1.service_renew('sweep', 'b', 4, 1000)$$);
ROLLBACK;
