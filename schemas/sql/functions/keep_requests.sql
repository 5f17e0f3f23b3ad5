-- keep_requests: what records were answered, for every later delivery. Internal, for submit, cancel and retry.
-- Inserted in key order. A key that another transaction used since this one looked is nobody's decision to make here: the
-- whole call is repeated (40001) and then finds it.
CREATE OR REPLACE FUNCTION @schema@.keep_requests(p_t timestamptz, p_verb text, p_tenants text[], p_keys text[],
    p_digests text[], p_sources text[], p_tasks text[], p_run_ids uuid[], p_outcomes text[], p_details jsonb[],
    p_bys text[], p_records jsonb[] DEFAULT NULL, p_until timestamptz DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_rows integer;
BEGIN
    IF coalesce(cardinality(p_keys), 0) = 0 THEN
        RETURN;
    END IF;
    INSERT INTO @schema@.requests (tenant_id, request_key, verb, digest, source, task_id, run_id, outcome, detail, record,
                                   waiting_until, requested_by, created_at)
    SELECT u.tenant_id, u.request_key, p_verb, u.digest, u.source, u.task_id, u.run_id, u.outcome, u.detail,
           CASE WHEN u.outcome = 'waiting' THEN u.record END, CASE WHEN u.outcome = 'waiting' THEN p_until END,
           u.requested_by, p_t
    FROM unnest(p_tenants, p_keys, p_digests, p_sources, p_tasks, p_run_ids, p_outcomes, p_details, p_bys, p_records)
         AS u(tenant_id, request_key, digest, source, task_id, run_id, outcome, detail, requested_by, record)
    ORDER BY u.tenant_id, u.request_key
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    IF v_rows < cardinality(p_keys) THEN
        RAISE EXCEPTION '%: a request key was used by another transaction at this moment', p_verb USING ERRCODE = '40001';
    END IF;
END $$;

-- request_keys(p_keys, p_own): where a record's key is kept. A producer's own request_id is in a space of its own, 'r:',
-- whether the caller has put it there or not: it must never meet the position of somebody else's record.
CREATE OR REPLACE FUNCTION @schema@.request_keys(p_keys text[], p_own boolean[]) RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(array_agg(CASE WHEN u.own AND u.key NOT LIKE 'r:%' THEN 'r:' || u.key ELSE u.key END ORDER BY u.ord), '{}')
    FROM unnest(p_keys, p_own) WITH ORDINALITY AS u(key, own, ord)
$$;

-- check_records: two items of one task or one request key in a batch are a bug of the caller (22023).
CREATE OR REPLACE FUNCTION @schema@.check_records(p_verb text, p_tenants text[], p_tasks text[], p_keys text[])
RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM unnest(p_tenants, p_tasks) AS u(tenant_id, task_id)
               WHERE u.tenant_id IS NOT NULL AND u.task_id IS NOT NULL GROUP BY u.tenant_id, u.task_id HAVING count(*) > 1)
       OR EXISTS (SELECT 1 FROM unnest(p_tenants, p_keys) AS u(tenant_id, request_key)
                  WHERE u.tenant_id IS NOT NULL AND u.request_key IS NOT NULL
                  GROUP BY u.tenant_id, u.request_key HAVING count(*) > 1) THEN
        RAISE EXCEPTION '%: a task or a request key is named twice', p_verb USING ERRCODE = '22023';
    END IF;
END $$;
