-- The row work of one no-op run, end to end, as plain set-based SQL on the product's own tables: what is left when
-- Kafka, C, checks of the caller and every decision are taken away. Locks, constraints, triggers, history and events
-- are the product's. Four transactions a batch, as in the product: submit, claim, commit, delete of published events.
CREATE SCHEMA bench;

CREATE FUNCTION bench.submit(p_n integer) RETURNS void LANGUAGE plpgsql SET search_path = holdfast, pg_temp AS $$
DECLARE
    t timestamptz := clock_timestamp();
    -- Ordered by time, as the product's run_id (UUIDv7) is.
    v_ids uuid[] := ARRAY(SELECT (lpad(to_hex((extract(epoch FROM t) * 1000)::bigint), 12, '0') || '7'
                                  || substr(md5(random()::text || g), 1, 3) || '8' || substr(md5(random()::text || g), 4, 15))::uuid
                          FROM generate_series(1, p_n) g ORDER BY 1);
BEGIN
    INSERT INTO requests (tenant_id, request_key, verb, digest, source, task_id, run_id, outcome)
        SELECT 'default', 'kafka:' || i, 'submit', 'sha256:0', 'tasks/0/' || i, i::text, i, 'created' FROM unnest(v_ids) i;
    INSERT INTO agent_tasks (tenant_id, task_id) SELECT 'default', i::text FROM unnest(v_ids) i;
    INSERT INTO agent_runs (run_id, tenant_id, task_id, status, handler, first_run_id)
        SELECT i, 'default', i::text, 'pending', 'plan', i FROM unnest(v_ids) i;
    UPDATE agent_tasks a SET active_run_id = i FROM unnest(v_ids) i WHERE a.tenant_id = 'default' AND a.task_id = i::text;
    INSERT INTO run_data (run_id, input) SELECT i, '{"steps":[]}' FROM unnest(v_ids) i;
    INSERT INTO worker_leases (run_id) SELECT i FROM unnest(v_ids) i;
    INSERT INTO run_history (at, tenant_id, task_id, run_id, kind, to_status, epoch, revision)
        SELECT t, 'default', i::text, i, 'created', 'pending', 0, 0 FROM unnest(v_ids) i;
    INSERT INTO ready (run_id, handler, priority, since) SELECT i, 'plan', 0, t FROM unnest(v_ids) i;
END $$;

CREATE FUNCTION bench.claim(p_owner text, p_n integer) RETURNS uuid[] LANGUAGE plpgsql SET search_path = holdfast, pg_temp AS $$
DECLARE
    v_ids uuid[];
    t timestamptz;
BEGIN
    SELECT array_agg(run_id ORDER BY run_id) INTO v_ids
      FROM (SELECT run_id FROM ready ORDER BY priority DESC, since, run_id LIMIT p_n FOR UPDATE SKIP LOCKED) c;
    PERFORM 1 FROM worker_leases WHERE run_id = ANY (v_ids) ORDER BY run_id FOR NO KEY UPDATE;
    PERFORM 1 FROM agent_runs WHERE run_id = ANY (v_ids) ORDER BY run_id FOR NO KEY UPDATE;
    t := clock_timestamp();
    DELETE FROM ready WHERE run_id = ANY (v_ids);
    UPDATE worker_leases SET owner = p_owner, epoch = epoch + 1, expires_at = t + interval '30 s', updated_at = t
     WHERE run_id = ANY (v_ids);
    UPDATE agent_runs SET status = 'running', revision = revision + 1, attempts = 1, updated_at = t WHERE run_id = ANY (v_ids);
    INSERT INTO claims (token, owner, run_ids, made_at) SELECT gen_random_uuid(), p_owner, v_ids, t;
    INSERT INTO run_history (at, tenant_id, task_id, run_id, kind, from_status, to_status, epoch, revision, owner)
        SELECT t, 'default', i::text, i, 'started', 'pending', 'running', 1, 1, p_owner FROM unnest(v_ids) i;
    INSERT INTO outbox_events (seq, event_id, shard, tenant_id, task_id, run_id, type, epoch, revision, timeline, at, body)
        SELECT nextval('outbox_seq'), gen_random_uuid(), abs(hashtext(i::text)) % 8, 'default', i::text, i, 'run.started',
               1, 1, 1, t, '{}' FROM unnest(v_ids) i;
    RETURN coalesce(v_ids, '{}');
END $$;

CREATE FUNCTION bench.finish(p_ids uuid[], p_owner text) RETURNS void LANGUAGE plpgsql SET search_path = holdfast, pg_temp AS $$
DECLARE
    t timestamptz;
BEGIN
    PERFORM 1 FROM worker_leases WHERE run_id = ANY (p_ids) ORDER BY run_id FOR NO KEY UPDATE;
    PERFORM 1 FROM agent_runs WHERE run_id = ANY (p_ids) ORDER BY run_id FOR NO KEY UPDATE;
    t := clock_timestamp();
    UPDATE agent_runs SET status = 'succeeded', revision = revision + 1, attempts = 0, commit_id = gen_random_uuid(),
           commit_epoch = 1, commit_revision = revision + 1, updated_at = t WHERE run_id = ANY (p_ids);
    UPDATE worker_leases SET owner = NULL, expires_at = t, updated_at = t WHERE run_id = ANY (p_ids);
    UPDATE run_data SET output = '{"steps":{}}' WHERE run_id = ANY (p_ids);
    INSERT INTO run_history (at, tenant_id, task_id, run_id, kind, from_status, to_status, epoch, revision, owner)
        SELECT t, 'default', i::text, i, 'succeeded', 'running', 'succeeded', 1, 2, p_owner FROM unnest(p_ids) i;
    INSERT INTO outbox_events (seq, event_id, shard, tenant_id, task_id, run_id, type, epoch, revision, timeline, at, body)
        SELECT nextval('outbox_seq'), gen_random_uuid(), abs(hashtext(i::text)) % 8, 'default', i::text, i, 'run.succeeded',
               1, 2, 1, t, '{"output":{"steps":{}}}' FROM unnest(p_ids) i;
END $$;

CREATE FUNCTION bench.publish(p_n integer) RETURNS void LANGUAGE plpgsql SET search_path = holdfast, pg_temp AS $$
DECLARE
    v_shard integer := (random() * 7.999)::integer % 8;
BEGIN
    DELETE FROM outbox_events WHERE (shard, seq) IN
        (SELECT shard, seq FROM outbox_events WHERE shard = v_shard ORDER BY seq LIMIT p_n FOR UPDATE SKIP LOCKED);
    UPDATE relay_positions SET last_batch = last_batch + 1 WHERE shard = v_shard;
END $$;
