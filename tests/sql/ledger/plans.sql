-- A fresh installation has no statistics: no function of the ledger may scan a big table for a small batch, and what is
-- settled long ago must cost a claim nothing.
\ir fixture.inc

SELECT count(probe.op(r, s)) FROM (SELECT probe.run(g) AS r FROM generate_series(1, 400) g) x, unnest('{a,b,c,d,e}'::text[]) s;
-- Most of it is history: settled, or in doubt for ever.
UPDATE holdfast.tool_operations SET status = 'dispatching' WHERE step_id IN ('a', 'b', 'c');
UPDATE holdfast.tool_operations SET status = 'succeeded' WHERE step_id IN ('a', 'b');
UPDATE holdfast.tool_operations SET status = 'unknown', attempts = 1 WHERE step_id = 'c';
INSERT INTO holdfast.outbox_events (seq, event_id, shard, tenant_id, task_id, type, timeline, at, body)
SELECT nextval('holdfast.outbox_seq'), gen_random_uuid(), g % 8, 'default', 't', 'x', 1, clock_timestamp(), '{}'
  FROM generate_series(1, 2000) g;
INSERT INTO holdfast.operation_evidence (operation_id, kind) SELECT 'x' || g, 'x' FROM generate_series(1, 2000) g;

-- Rows of a table that this session fetched so far, by whatever scan.
CREATE FUNCTION probe.fetched(OUT whole bigint, OUT by_index bigint) LANGUAGE sql VOLATILE AS $$
    SELECT sum(s.seq_scan) FILTER (WHERE s.relname IN ('tool_operations', 'agent_runs', 'worker_leases', 'run_data',
                                                       'operation_evidence', 'outbox_events')),
           sum(s.idx_tup_fetch) FILTER (WHERE s.relname = 'tool_operations')
      FROM pg_stat_xact_user_tables s WHERE s.schemaname = 'holdfast'
$$;

DO $$
DECLARE
    b record;
    f record;
    v_ids text[];
    v_revisions bigint[];
    v_n text;
BEGIN
    b := probe.fetched();
    -- A claim of ten looks at ten, and at none of the 400 in doubt for ever.
    SELECT array_agg(c.operation_id), array_agg(c.revision) INTO v_ids, v_revisions
      FROM holdfast_v1.claim_operations('d1', gen_random_uuid(), 10, 60000, '{pay}', NULL) c;
    f := probe.fetched();
    PERFORM probe.same(cardinality(v_ids), 10);
    PERFORM probe.same(f.whole, b.whole);
    ASSERT f.by_index - b.by_index < 150, format('%s rows of tool_operations for 10', f.by_index - b.by_index);
    PERFORM FROM holdfast_v1.claim_operations('d1', gen_random_uuid(), 10, 60000, NULL, NULL);
    PERFORM FROM holdfast_v1.claim_operations('d1', gen_random_uuid(), 10, 60000, NULL, v_ids);
    b := probe.fetched();
    PERFORM FROM holdfast_v1.claim_unknown('d1', gen_random_uuid(), 10, 60000, NULL, NULL);
    PERFORM FROM holdfast_v1.claim_operations('d1', gen_random_uuid(), 10, 60000, '{mail}', NULL);
    f := probe.fetched();
    ASSERT f.by_index - b.by_index < 20, format('%s rows of tool_operations for nothing', f.by_index - b.by_index);
    PERFORM FROM holdfast_v1.claim_unknown('d1', gen_random_uuid(), 10, 60000, '{pay}', v_ids);
    PERFORM FROM holdfast_v1.record_unknown(v_ids[1:2], '{d1,d1}', v_revisions[1:2], '{1,1}', '{0,0}', '{NULL,NULL}');
    PERFORM FROM holdfast_v1.record_not_sent(v_ids[3:4], '{d1,d1}', v_revisions[3:4], '{1,1}', '{0,0}', '{NULL,NULL}');
    PERFORM FROM holdfast_v1.record_not_sent(v_ids[3:4], '{d1,d1}', v_revisions[3:4], '{1,1}', '{0,0}', '{NULL,NULL}');
    SELECT string_agg(outcome, ' ') INTO v_n FROM holdfast_v1.record_result(v_ids[5:6], '{d1,d1}', v_revisions[5:6], '{1,1}',
        (SELECT array_agg('sha256:' || split_part(i, '/', 3) ORDER BY o) FROM unnest(v_ids[5:6]) WITH ORDINALITY u (i, o)),
        '{succeeded,succeeded}', '{r,r}', '{NULL,NULL}', '{NULL,NULL}');
    PERFORM probe.same(v_n, 'recorded recorded');
    PERFORM FROM holdfast_v1.record_result(v_ids[5:6], '{dX,dX}', v_revisions[5:6], '{1,1}', '{x,x}',
        '{succeeded,succeeded}', '{r,r}', '{NULL,NULL}', '{NULL,NULL}');
    f := probe.fetched();
    PERFORM probe.same(f.whole, b.whole);
    UPDATE holdfast.tool_operations SET dispatch_until = clock_timestamp() WHERE operation_id = ANY (v_ids[7:8]);
    PERFORM FROM holdfast_v1.expire_claims(10);
    PERFORM holdfast_v1.service_acquire('shard:3', 'a', 2000);
    PERFORM FROM holdfast_v1.events_read(3, 'a', 1, 100, 20, 1000);
    PERFORM FROM holdfast_v1.events_delete(3, 'a', 1, 1, '{3,11}', ARRAY[gen_random_uuid(), gen_random_uuid()]);
    PERFORM FROM holdfast_v1.relay_position(3);
    PERFORM FROM holdfast_v1.relay_position(3, 1000);
    PERFORM FROM holdfast_v1.relay_checked(3, 'a', 1, pg_postmaster_start_time());
END $$;
-- Counted again in one transaction, with the plans that the session keeps.
DO $$
DECLARE
    b record := probe.fetched();
    f record;
BEGIN
    PERFORM FROM holdfast_v1.claim_operations('d1', gen_random_uuid(), 10, 60000, NULL, NULL);
    PERFORM FROM holdfast_v1.claim_unknown('d1', gen_random_uuid(), 10, 60000, NULL, NULL);
    PERFORM FROM holdfast_v1.expire_claims(10);
    PERFORM FROM holdfast_v1.events_read(3, 'a', 1, 100, 20);
    PERFORM FROM holdfast_v1.relay_position(3);
    PERFORM FROM holdfast_v1.events_delete(3, 'a', 1, 1, '{19}', ARRAY[gen_random_uuid()]);
    f := probe.fetched();
    PERFORM probe.same(coalesce(f.whole, 0), coalesce(b.whole, 0));
END $$;
-- The verbs of side effects, beside the same history.
UPDATE holdfast.tool_operations SET capability = 'query', not_before = clock_timestamp() + interval '1 hour' WHERE step_id = 'c';
INSERT INTO holdfast.signals (tenant_id, task_id, signal_id, name) SELECT 'default', 'x' || g, 's', 'go' FROM generate_series(1, 2000) g;
DO $$
DECLARE
    b record;
    f record;
    v_ids text[] := ARRAY(SELECT o.operation_id FROM holdfast.tool_operations o WHERE o.step_id = 'c' ORDER BY 1 LIMIT 4);
BEGIN
    UPDATE holdfast.tool_operations SET not_before = clock_timestamp() WHERE operation_id = ANY (v_ids);
    b := probe.fetched();
    PERFORM probe.same((SELECT count(*) FROM holdfast_v1.claim_queries('q1', gen_random_uuid(), 10, 60000, NULL)), 4::bigint);
    PERFORM FROM holdfast_v1.record_query(v_ids[1:1], '{q1}', '{1}', '{0}', '{NULL}');
    PERFORM FROM holdfast_v1.converge(v_ids[2:3], '{NULL,NULL}', '{q1,q1}', '{sha256:c,sha256:c}', '{succeeded,absent}',
                                      '{NULL,NULL}', '{NULL,NULL}', '{NULL,NULL}', '{t,t}');
    PERFORM FROM holdfast_v1.resolve(v_ids[4:4], '{0}', '{succeeded}', '{a}', '{b}', '{NULL}', '{NULL}', '{NULL}');
    PERFORM FROM holdfast_v1.cancel_operation(v_ids[1:1], '{0}', '{a}', '{b}');
    PERFORM FROM holdfast_v1.raise_capability(v_ids[1:1], '{0}', '{query}', '{"{}"}', '{a}', '{b}');
    PERFORM FROM holdfast_v1.compensate(v_ids[2:2], '{compensate}', '{refund}', '{"{}"}', '{d}', '{NULL}', '{NULL}', '{NULL}', '{t}');
    PERFORM FROM holdfast_v1.undo_due(10, NULL);
    PERFORM FROM holdfast_v1.operation_story(v_ids[1]);
    PERFORM holdfast.escalate(10);
    PERFORM FROM holdfast_v1.signal('{default}', '{t7}', '{s}', '{t}', '{d}', '{NULL}', '{NULL}', '{NULL}', '{s}', '{go}', '{NULL}', '{NULL}');
    f := probe.fetched();
    PERFORM probe.same(coalesce(f.whole, 0), coalesce(b.whole, 0));
    ASSERT f.by_index - b.by_index < 100, format('%s rows of tool_operations for four', f.by_index - b.by_index);
END $$;
