-- What pods and people ask: registry, server facts, gauges.
\ir fixture.inc

DO $$
BEGIN
    PERFORM probe.same((SELECT string_agg(item || outcome, ' ' ORDER BY item) FROM holdfast_v1.register(
        '{tool,handler,tool}', '{pay,plan,mail}', '{d1,d2,d3}', ARRAY['{"a":1}', NULL, '{}']::jsonb[], 'pod-1')),
        '1registered 2registered 3registered');
    PERFORM probe.same((SELECT string_agg(item || outcome, ' ' ORDER BY item) FROM holdfast_v1.register(
        '{tool,tool}', '{mail,pay}', '{d3,other}', '{NULL,NULL}', 'pod-2')), '1exists 2registered');
    PERFORM probe.same((SELECT string_agg(kind || name || digest || pod, ' ' ORDER BY name) FROM holdfast_v1.known('tool')),
                       'toolmaild3pod-2 toolpayotherpod-2');
    PERFORM probe.same((SELECT count(*) FROM holdfast_v1.known(NULL)), 3::bigint);
    PERFORM probe.fails('22023', 'SELECT * FROM holdfast_v1.register(' || a || ')') FROM unnest(ARRAY[
        $a$'{x}', '{n}', '{d}', '{NULL}', 'p'$a$, $a$'{tool}', '{}', '{d}', '{NULL}', 'p'$a$,
        $a$'{tool}', '{NULL}', '{d}', '{NULL}', 'p'$a$, $a$'{tool}', '{n}', '{d}', '{NULL}', ''$a$,
        $a$'{tool,tool}', '{n,n}', '{d,d}', '{NULL,NULL}', 'p'$a$]) a;
END $$;

DO $$
DECLARE
    f record;
BEGIN
    SELECT * INTO STRICT f FROM holdfast_v1.server_facts();
    PERFORM probe.same((f.in_recovery, f.read_only, f.schema_version, f.failover_mode, f.shards, f.gate_open)::text,
                       (false, false, (SELECT schema_version FROM holdfast.control), 'async', 8, true)::text);
    PERFORM probe.same(f.system_identifier, (SELECT system_identifier FROM holdfast.control));
    PERFORM probe.same(f.version_num, current_setting('server_version_num')::integer);
    PERFORM probe.same(f.fsync, current_setting('fsync')::boolean);
    ASSERT f.clock BETWEEN clock_timestamp() - interval '5 s' AND clock_timestamp() AND f.lsn > 0;
    PERFORM probe.same(f.login, session_user::text);
END $$;

DO $$
DECLARE
    r uuid := probe.run(1);
    w uuid := probe.run(2);
    s record;
BEGIN
    PERFORM probe.op(r, 'p' || g) FROM generate_series(1, 3) g;
    PERFORM probe.op(r, 'mail', p_tool => 'mail'), probe.op(r, 'u'), probe.op(r, 'n'), probe.op(r, 'done');
    PERFORM probe.claim('default/' || r || '/' || x || '/1') FROM unnest('{mail,u,n,done}'::text[]) x;
    PERFORM probe.unknown('default/' || r || '/u/1', 1, 1), probe.not_sent('default/' || r || '/n/1', 1, 1),
            probe.result('default/' || r || '/done/1', 1, 1);
    UPDATE holdfast.tool_operations SET first_sent_at = clock_timestamp() - interval '100 s' WHERE step_id = 'u';
    UPDATE holdfast.worker_leases SET owner = 'x', expires_at = clock_timestamp() + interval '1 h' WHERE run_id = r;
    PERFORM probe.park(w, 'all', ARRAY['default/' || r || '/u/1']);
    SELECT * INTO STRICT s FROM holdfast_v1.stats();
    PERFORM probe.same((s.ready, s.held, s.parked, s.stranded)::text, (0, 1, 1, 0)::text);
    PERFORM probe.same((s.prepared, s.dispatching, s.unsent, s.unknown)::text, (3, 1, 1, 1)::text);
    ASSERT s.unknown_oldest_seconds BETWEEN 100 AND 130;
    PERFORM probe.same((SELECT string_agg(concat_ws(' ', x.tool, x.prepared, x.dispatching, x.unsent, x.unknown), ', ')
                          FROM jsonb_to_recordset(s.tools) x (tool text, prepared int, dispatching int, unsent int,
                                                              unknown int)), 'mail 0 1 0 0, pay 3 0 1 1');
    PERFORM probe.same((jsonb_array_length(s.shards), s.outbox)::text, (8, 2)::text);
    PERFORM probe.same((SELECT sum(x.rows) FROM jsonb_to_recordset(s.shards) x (rows int)), 2::bigint);
    ASSERT s.outbox_oldest_seconds BETWEEN 0 AND 30;

    -- What needs a scan over all runs is counted again only after twenty times as long as it took.
    UPDATE holdfast.gauges SET parked = 77, stranded = 78, at = clock_timestamp(), took = '1 min';
    PERFORM probe.same((SELECT (x.parked, x.stranded)::text FROM holdfast_v1.stats() x), (77, 78)::text);
    UPDATE holdfast.gauges SET at = clock_timestamp() - interval '21 min';
    PERFORM probe.same((SELECT (x.parked, x.stranded)::text FROM holdfast_v1.stats() x), (1, 0)::text);
    ASSERT (SELECT g.took < '1 min' FROM holdfast.gauges g);
END $$;
