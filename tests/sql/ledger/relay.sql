-- What the relay says and is told: that a shard was compared with Kafka, what is its share, what is too old to publish.
\ir fixture.inc

CREATE FUNCTION probe.gate() RETURNS text LANGUAGE sql AS $$
    SELECT open || coalesce(' ' || reason, '') FROM holdfast_v1.gate_status() $$;
CREATE FUNCTION probe.checked(p_shard integer, p_owner text DEFAULT 'a', p_epoch bigint DEFAULT 1,
                              p_start timestamptz DEFAULT pg_postmaster_start_time()) RETURNS text LANGUAGE sql AS $$
    SELECT outcome FROM holdfast_v1.relay_checked(p_shard, p_owner, p_epoch, p_start) $$;
CREATE FUNCTION probe.share(p_owner text, p_ttl_ms bigint DEFAULT 2000) RETURNS text LANGUAGE sql AS $$
    SELECT pods || '/' || share FROM holdfast_v1.relay_share(p_owner, p_ttl_ms) $$;

-- Nobody waits where it is not asked for.
SELECT probe.same(probe.gate(), 'true');
UPDATE holdfast.control SET claims_wait_for_relay = true, shards = 2;
DO $$
DECLARE
    a text := probe.op(probe.run(1), 'a');
BEGIN
    PERFORM probe.same(probe.gate(), 'false relay_unchecked');
    PERFORM probe.same(probe.claim(a), 'gate_closed');
    PERFORM probe.same(probe.checked(0), 'not_holder');
    PERFORM holdfast_v1.service_acquire('shard:' || s, 'a', 2000) FROM generate_series(0, 1) s;
    PERFORM probe.same((SELECT checked FROM holdfast_v1.relay_position(0)), false);
    PERFORM probe.same(probe.checked(0, 'b'), 'not_holder');
    PERFORM probe.same(probe.checked(0, 'a', 2), 'not_holder');
    PERFORM probe.same(probe.checked(0, 'a', 1, pg_postmaster_start_time() - interval '1 microsecond'), 'stale');
    PERFORM probe.same(probe.checked(0, 'a', 1, NULL), 'stale');
    PERFORM probe.same((SELECT checked FROM holdfast_v1.relay_position(0)), false);
    PERFORM probe.same(probe.checked(0, 'a', 1, (SELECT server_start FROM holdfast_v1.relay_position(0))), 'recorded');
    PERFORM probe.same((SELECT checked FROM holdfast_v1.relay_position(0)), true);
    PERFORM probe.same((SELECT checked FROM holdfast_v1.relay_position(1)), false);
    PERFORM probe.same(probe.checked(0), 'recorded'); -- asked again
    PERFORM probe.same(probe.gate(), 'false relay_unchecked');
    -- An operator may open what was closed meanwhile; claims still wait.
    PERFORM holdfast_v1.gate_close('relay', 'Kafka remembers more');
    PERFORM probe.same((SELECT outcome || ' ' || reason FROM holdfast_v1.gate_open('ann', 'looked at it')), 'ok relay_unchecked');
    PERFORM probe.same(probe.gate(), 'false relay_unchecked');
    PERFORM probe.same(probe.checked(1), 'recorded');
    PERFORM probe.same(probe.gate(), 'true');
    PERFORM probe.same(probe.claim(a), 'claimed 1/1');
    -- The server starts again: as if it had, for its start time is another one than the stored.
    UPDATE holdfast.control SET relay_checked_start = relay_checked_start - interval '1 hour';
    UPDATE holdfast.relay_positions SET checked_start = checked_start - interval '1 hour';
    PERFORM probe.same(probe.gate(), 'false relay_unchecked');
    PERFORM probe.same(probe.checked(1), 'recorded');
    PERFORM probe.same(probe.gate(), 'false relay_unchecked');
    PERFORM probe.same(probe.checked(0), 'recorded');
    PERFORM probe.same(probe.gate(), 'true');
    PERFORM probe.fails('22023', 'SELECT * FROM holdfast_v1.relay_checked(2, ''a'', 1, now())');
    PERFORM probe.fails('22023', 'SELECT * FROM holdfast_v1.relay_checked(NULL, ''a'', 1, now())');
    PERFORM probe.fails('22023', 'SELECT * FROM holdfast_v1.relay_checked(0, NULL, 1, now())');
END $$;

-- Shares: rounded up, so that together they are never less than all shards.
UPDATE holdfast.control SET shards = 8;
DO $$
BEGIN
    PERFORM probe.same(probe.share('a'), '1/8');
    PERFORM probe.same(probe.share('a'), '1/8');
    PERFORM probe.same(probe.share('b'), '2/4');
    PERFORM probe.same(probe.share('c'), '3/3');
    PERFORM probe.same(probe.share('b', NULL), '2/4'); -- it leaves
    PERFORM probe.same(probe.share('b', NULL), '2/4');
    UPDATE holdfast.relay_pods SET expires_at = clock_timestamp() WHERE owner = 'c'; -- it is not heard of any more
    PERFORM probe.same(probe.share('a'), '1/8');
    PERFORM probe.same(probe.share('c'), '2/4'); -- and comes back
    UPDATE holdfast.relay_pods SET expires_at = clock_timestamp() - interval '2 minutes' WHERE owner = 'c';
    PERFORM probe.same(probe.share('a'), '1/8');
    PERFORM probe.same((SELECT string_agg(owner, ' ') FROM holdfast.relay_pods), 'a');
    PERFORM probe.same(probe.share('a', NULL), '0/8');
    PERFORM probe.share('p' || n) FROM generate_series(1, 20) n;
    PERFORM probe.same(probe.share('p1'), '20/1'); -- more pods than shards
    PERFORM probe.fails('22023', 'SELECT * FROM holdfast_v1.relay_share('''', 1000)');
    PERFORM probe.fails('22023', 'SELECT * FROM holdfast_v1.relay_share(''a'', 0)');
    PERFORM probe.fails('22023', 'SELECT * FROM holdfast_v1.relay_share(''a'', 2001)');
END $$;

-- Rows that are older than Kafka's memory are counted and left out.
DO $$
DECLARE
    t timestamptz := clock_timestamp();
BEGIN
    INSERT INTO holdfast.outbox_events (seq, event_id, shard, tenant_id, task_id, type, timeline, at, body)
    SELECT s, probe.uuid(s), 5, 'default', 't', 'x', 1, t - s * interval '1 hour', '{}' FROM generate_series(1, 4) s;
    PERFORM holdfast_v1.service_acquire('shard:5', 'a', 2000);
    PERFORM probe.same((SELECT string_agg(seq::text, ' ' ORDER BY item) FROM holdfast_v1.events_read(5, 'a', 1, 0, 10, 9000000)),
                       '1 2');
    PERFORM probe.same((SELECT string_agg(seq::text, ' ' ORDER BY item) FROM holdfast_v1.events_read(5, 'a', 1, 0, 10)), '1 2 3 4');
    PERFORM probe.same((SELECT held_back || ' ' || oldest_seq FROM holdfast_v1.relay_position(5, 9000000)), '2 1');
    PERFORM probe.same((SELECT held_back FROM holdfast_v1.relay_position(5)), 0);
    PERFORM probe.same((SELECT held_back FROM holdfast_v1.relay_position(4, 1)), 0);
END $$;
