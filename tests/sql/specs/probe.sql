-- Short ways to call the interface from isolation specs. Loaded once into the tests' database; not part of the product.
DROP SCHEMA IF EXISTS probe CASCADE;
CREATE SCHEMA probe;

CREATE FUNCTION probe.run(n integer) RETURNS uuid LANGUAGE sql IMMUTABLE
AS $$ SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid $$;

CREATE FUNCTION probe.operation(n integer) RETURNS text LANGUAGE sql IMMUTABLE
AS $$ SELECT 'default/' || probe.run(n) || '/pay/1' $$;

CREATE FUNCTION probe.submit(n integer) RETURNS text LANGUAGE sql AS $$
    SELECT s.outcome FROM holdfast_v1.submit('{default}', ARRAY['t' || n], ARRAY['kafka:' || n], '{f}', '{d}', ARRAY['s' || n],
        '{NULL}', '{NULL}', '{plan}', ARRAY[probe.run(n)], '{NULL}', '{0}', '{NULL}', '{NULL}', '{9}', '{f}', '{f}', '{NULL}',
        '{NULL}', '{NULL}') s
$$;

CREATE FUNCTION probe.acquire(n integer, who text, ttl_ms bigint DEFAULT 60000) RETURNS text LANGUAGE sql AS $$
    SELECT a.outcome || coalesce(' epoch ' || a.epoch || ' revision ' || a.revision, '')
    FROM holdfast_v1.acquire(who, gen_random_uuid(), ARRAY[probe.run(n)], ttl_ms, NULL) a
$$;

CREATE FUNCTION probe.renew(n integer, who text, epoch bigint) RETURNS text LANGUAGE sql AS $$
    SELECT r.outcome FROM holdfast_v1.renew(ARRAY[probe.run(n)], ARRAY[who], ARRAY[$3], 60000) r
$$;

CREATE FUNCTION probe.commit(n integer, who text, epoch bigint, revision bigint, checkpoint jsonb DEFAULT NULL,
    finish text DEFAULT NULL, intend boolean DEFAULT false, id uuid DEFAULT gen_random_uuid()) RETURNS text LANGUAGE sql AS $$
    SELECT c.outcome || coalesce(' revision ' || c.revision, '') FROM holdfast_v1.commit(ARRAY[probe.run(n)], ARRAY[who],
        ARRAY[$3], ARRAY[$4], ARRAY[id], '{d}', ARRAY[checkpoint], ARRAY[finish], '{NULL}', '{f}', '{NULL}', '{NULL}', '{NULL}',
        '{NULL}',
        CASE WHEN intend THEN '{1}'::integer[] ELSE '{}' END, CASE WHEN intend THEN ARRAY[probe.operation(n)] ELSE '{}' END,
        CASE WHEN intend THEN '{pay}'::text[] ELSE '{}' END, CASE WHEN intend THEN '{1}'::integer[] ELSE '{}' END,
        CASE WHEN intend THEN '{pay}'::text[] ELSE '{}' END, CASE WHEN intend THEN '{sha256:1}'::text[] ELSE '{}' END,
        CASE WHEN intend THEN ARRAY['{}'::jsonb] ELSE '{}' END, CASE WHEN intend THEN '{none}'::text[] ELSE '{}' END,
        CASE WHEN intend THEN ARRAY['{}'::jsonb] ELSE '{}' END, CASE WHEN intend THEN ARRAY[probe.operation(n)] ELSE '{}' END,
        CASE WHEN intend THEN '{f}'::boolean[] ELSE '{}' END, CASE WHEN intend THEN '{NULL}'::text[] ELSE '{}' END,
        '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}') c
$$;

CREATE FUNCTION probe.cancel(n integer) RETURNS text LANGUAGE sql AS $$
    SELECT c.outcome FROM holdfast_v1.cancel('{default}', ARRAY['t' || n], ARRAY['kafka:c' || n], '{f}', '{d}', '{NULL}', '{NULL}',
        '{NULL}', '{NULL}', '{NULL}') c
$$;

CREATE FUNCTION probe.sweep() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    s record;
BEGIN
    SELECT * INTO s FROM holdfast_v1.service_acquire('sweep', 's', 2000);
    SELECT * INTO s FROM holdfast_v1.sweep('s', s.epoch, 100);
    RETURN s.outcome || ' expired ' || s.leases_expired;
END $$;

-- Claims by a dispatcher; says which operations it got.
CREATE FUNCTION probe.claim_operations(token uuid, ttl_ms bigint DEFAULT 60000) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(c.outcome || ' ' || c.step_id, ',' ORDER BY c.operation_id), 'nothing')
    FROM holdfast_v1.claim_operations('d', token, 10, ttl_ms, NULL, NULL) c
$$;

-- Waits until the database's clock has passed the end of a lease or a claim: for a fact, not for a time.
CREATE FUNCTION probe.wait_lease_over(n integer) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_end timestamptz := (SELECT l.expires_at FROM holdfast.worker_leases l WHERE l.run_id = probe.run(n));
BEGIN
    IF v_end > clock_timestamp() + interval '20 seconds' THEN
        RAISE EXCEPTION 'the lease does not end within the time limit';
    END IF;
    WHILE clock_timestamp() <= v_end LOOP
        PERFORM pg_sleep(0.02);
    END LOOP;
    RETURN 'over';
END $$;

CREATE FUNCTION probe.forget() RETURNS void LANGUAGE sql AS $$
    DELETE FROM holdfast.outbox_events; DELETE FROM holdfast.run_history; DELETE FROM holdfast.refusals;
    DELETE FROM holdfast.operation_evidence; DELETE FROM holdfast.claims; DELETE FROM holdfast.signals;
    DELETE FROM holdfast.timers; DELETE FROM holdfast.ready; DELETE FROM holdfast.requests;
    DELETE FROM holdfast.tool_operations; DELETE FROM holdfast.run_data; DELETE FROM holdfast.worker_leases;
    DELETE FROM holdfast.agent_runs; DELETE FROM holdfast.agent_tasks; DELETE FROM holdfast.service_leases
$$;
