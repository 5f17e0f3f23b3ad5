-- The relay's functions: read in order, delete by sequence and UUID, position, barrier.
\ir fixture.inc

CREATE FUNCTION probe.event(p_shard integer, p_seq bigint) RETURNS uuid LANGUAGE sql AS $$
    INSERT INTO holdfast.outbox_events (seq, event_id, shard, tenant_id, task_id, type, timeline, at, body)
    VALUES (p_seq, probe.uuid(p_seq::integer), p_shard, 'default', 't', 'x', 1, clock_timestamp(), '{}') RETURNING event_id
$$;
CREATE FUNCTION probe.read(p_owner text, p_epoch bigint, p_after bigint, p_limit integer DEFAULT 100) RETURNS text
LANGUAGE sql AS $$
    SELECT coalesce(string_agg(outcome || coalesce(seq::text, ''), ' ' ORDER BY item), '')
      FROM holdfast_v1.events_read(2, p_owner, p_epoch, p_after, p_limit)
$$;
CREATE FUNCTION probe.delete(p_owner text, p_epoch bigint, p_batch bigint, p_seqs bigint[], p_ids integer[]) RETURNS text
LANGUAGE sql AS $$
    SELECT outcome || ' ' || deleted FROM holdfast_v1.events_delete(2, p_owner, p_epoch, p_batch, p_seqs,
        (SELECT coalesce(array_agg(probe.uuid(i) ORDER BY o), '{}') FROM unnest(p_ids) WITH ORDINALITY u (i, o)))
$$;
CREATE FUNCTION probe.last() RETURNS bigint LANGUAGE sql AS $$ SELECT last_batch FROM holdfast_v1.relay_position(2) $$;

DO $$
BEGIN
    PERFORM probe.event(2, s) FROM unnest('{9,5,7,6,8}'::bigint[]) s;
    PERFORM probe.event(3, 4);
    PERFORM probe.same(probe.read('a', 1, NULL), 'not_holder');
    PERFORM holdfast_v1.service_acquire('shard:2', 'a', 2000);
    PERFORM probe.same(probe.read('a', 1, NULL), 'ok5 ok6 ok7 ok8 ok9');
    PERFORM probe.same(probe.read('a', 1, NULL, 2), 'ok5 ok6');
    PERFORM probe.same(probe.read('a', 1, 6, 2), 'ok7 ok8');
    PERFORM probe.same(probe.read('b', 1, NULL), 'not_holder');
    PERFORM probe.same(probe.read('a', 2, NULL), 'not_holder');
    ASSERT (SELECT bool_and(lsn::pg_lsn <= pg_current_wal_flush_lsn()) FROM holdfast_v1.events_read(2, 'a', 1, 0, 100));
    PERFORM probe.same((SELECT (oldest_seq, timeline, last_batch)::text FROM holdfast_v1.relay_position(2)),
                       (5, holdfast.server_timeline(), 0)::text);

    -- By both: a sequence that was reused after a failover belongs to another event.
    PERFORM probe.same(probe.delete('a', 1, 1, '{5,6}', '{5,77}'), 'deleted 1');
    PERFORM probe.same(probe.last(), 1::bigint);
    PERFORM probe.same(probe.read('a', 1, NULL), 'ok6 ok7 ok8 ok9');
    PERFORM probe.same(probe.delete('a', 1, 1, '{5,6}', '{5,77}'), 'deleted 0'); -- asked again
    PERFORM probe.same(probe.delete('a', 1, 3, '{4}', '{4}'), 'deleted 0');      -- another shard's row
    PERFORM probe.same(probe.last(), 3::bigint);
    PERFORM probe.same(probe.delete('a', 1, 2, '{6}', '{6}'), 'deleted 1');      -- an old batch found late: no way back
    PERFORM probe.same(probe.last(), 3::bigint);
    PERFORM probe.same(probe.delete('a', 1, NULL, '{7}', '{7}'), 'deleted 1');   -- a recovery
    PERFORM probe.same(probe.last(), 3::bigint);
    PERFORM probe.same(probe.delete('b', 1, 9, '{8}', '{8}'), 'not_holder 0');
    PERFORM probe.same(probe.last(), 3::bigint);

    -- A row that commits late with a small number is still found.
    PERFORM probe.event(2, 3);
    PERFORM probe.same(probe.read('a', 1, NULL), 'ok3 ok8 ok9');

    -- The shard's lease ran out: neither read nor delete.
    UPDATE holdfast.service_leases SET expires_at = clock_timestamp() WHERE name = 'shard:2';
    PERFORM probe.same(probe.read('a', 1, NULL), 'not_holder');
    PERFORM probe.same(probe.delete('a', 1, 4, '{8}', '{8}'), 'not_holder 0');
    PERFORM holdfast_v1.service_acquire('shard:2', 'b', 2000);
    PERFORM probe.same(probe.delete('a', 1, 4, '{8}', '{8}'), 'not_holder 0');
    PERFORM probe.same(probe.delete('b', 2, 4, '{8}', '{8}'), 'deleted 1');

    -- Closed: nothing is read for publishing; what is published may still be deleted.
    PERFORM holdfast_v1.gate_close('test', 'test');
    PERFORM probe.same(probe.read('b', 2, NULL), 'gate_closed');
    PERFORM probe.same(probe.delete('b', 2, 5, '{9}', '{9}'), 'deleted 1');
    PERFORM probe.same((SELECT outcome FROM holdfast_v1.barrier()), 'ok');

    PERFORM probe.fails('22023', 'SELECT * FROM holdfast_v1.events_read(8, ''a'', 1, 0, 10)');
    PERFORM probe.fails('22023', 'SELECT * FROM holdfast_v1.events_read(NULL, ''a'', 1, 0, 10)');
    PERFORM probe.fails('22023', 'SELECT * FROM holdfast_v1.events_read(2, ''a'', 1, 0, 0)');
    PERFORM probe.fails('22023', 'SELECT * FROM holdfast_v1.events_read(2, ''a'', 1, 0, 10001)');
    PERFORM probe.fails('22023', 'SELECT * FROM holdfast_v1.events_delete(2, ''a'', 1, 0, ''{1}'', ''{}'')');
    PERFORM probe.fails('22023', 'SELECT * FROM holdfast_v1.events_delete(2, ''a'', 1, 0, NULL, NULL)');
    PERFORM probe.fails('22023', 'SELECT * FROM holdfast_v1.relay_position(8)');
END $$;

-- The barrier is a write of its own: the WAL moves, whoever calls it.
SELECT pg_current_wal_insert_lsn() AS before \gset
SELECT outcome FROM holdfast_v1.barrier();
SELECT probe.same(pg_current_wal_flush_lsn() > :'before', true);
