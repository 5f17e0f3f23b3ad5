-- register(p_kind[], p_names[], p_digests[], p_declarations[], p_pod) → item, outcome   interface; worker, operator
--
-- A pod tells which handlers and tools it serves, and repeats that now and then: a name that no pod ever declared is a
-- typo of the submitter, a known one whose pods are away waits. The latest declaration of a name stands here; what
-- decides about an operation is the declaration stored with it at registration. A tool's limits over all pods
-- (max_in_flight_total, rate_per_s, rate_burst of the declaration) hold from here on for whatever is claimed of it.
--
-- Outcomes: registered (new, or with another digest than before), exists (seen_at moves).
-- Errors: 22023 for unequal lengths, an unknown kind, an empty name, pod or digest, the same name twice, a limit that is
-- no positive number.
-- Locks: rows of registry, then of tool_limits, in key order. Tables: registry, tool_limits.
CREATE OR REPLACE FUNCTION @iface@.register(p_kind text[], p_names text[], p_digests text[], p_declarations jsonb[],
                                            p_pod text)
RETURNS TABLE (item integer, outcome text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET lock_timeout = '2s'
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_before text[];
    t        timestamptz;
BEGIN
    PERFORM @schema@.batch_check('register', ARRAY[cardinality(p_kind), cardinality(p_names), cardinality(p_digests),
                                                   cardinality(p_declarations)]);
    IF EXISTS (SELECT FROM unnest(p_kind, p_names, p_digests) i (kind, name, digest)
                WHERE coalesce(i.kind, '') NOT IN ('handler', 'tool') OR coalesce(i.name, '') = ''
                   OR coalesce(i.digest, '') = '') OR coalesce(p_pod, '') = '' THEN
        RAISE EXCEPTION 'register: kind handler or tool, a name, a digest and the pod must be given'
            USING ERRCODE = '22023';
    END IF;
    IF EXISTS (SELECT FROM unnest(p_kind, p_names) i (kind, name) GROUP BY i.kind, i.name HAVING count(*) > 1) THEN
        RAISE EXCEPTION 'register: a name is given twice' USING ERRCODE = '22023';
    END IF;

    IF EXISTS (SELECT FROM unnest(p_kind, p_declarations) i (kind, declaration),
                           unnest('{max_in_flight_total,rate_per_s,rate_burst}'::text[]) n (name)
                WHERE i.kind = 'tool' AND i.declaration ? n.name
                  AND NOT coalesce(@schema@.declared(i.declaration, n.name) > 0, false)) THEN
        RAISE EXCEPTION 'register: a limit of a tool is no positive number' USING ERRCODE = '22023';
    END IF;

    PERFORM FROM @schema@.registry r
      JOIN unnest(p_kind, p_names) i (kind, name) ON r.kind = i.kind AND r.name = i.name
     ORDER BY r.kind, r.name FOR NO KEY UPDATE OF r;
    t := clock_timestamp();
    SELECT array_agg(r.digest ORDER BY i.ord) INTO v_before
      FROM unnest(p_kind, p_names) WITH ORDINALITY i (kind, name, ord)
      LEFT JOIN @schema@.registry r ON r.kind = i.kind AND r.name = i.name;

    INSERT INTO @schema@.registry AS r (kind, name, digest, declaration, pod, first_at, seen_at)
    SELECT i.kind, i.name, i.digest, coalesce(i.declaration, '{}'), p_pod, t, t
      FROM unnest(p_kind, p_names, p_digests, p_declarations) i (kind, name, digest, declaration)
     ORDER BY i.kind, i.name
        ON CONFLICT (kind, name) DO UPDATE
       SET digest = excluded.digest, declaration = excluded.declaration, pod = excluded.pod,
           seen_at = greatest(r.seen_at, excluded.seen_at);

    PERFORM @schema@.keep_limits(t, array_agg(i.name), array_agg(i.declaration))
       FROM unnest(p_kind, p_names, p_digests, p_declarations) WITH ORDINALITY i (kind, name, digest, declaration, ord)
      WHERE i.kind = 'tool' AND v_before[i.ord] IS DISTINCT FROM i.digest;

    RETURN QUERY SELECT i.ord::integer, CASE WHEN v_before[i.ord] = i.digest THEN 'exists' ELSE 'registered' END
                   FROM unnest(p_digests) WITH ORDINALITY i (digest, ord);
END
$$;

-- keep_limits(t, p_names[], p_declarations[]): the limits that tools declare from now on. A bucket keeps what it held.
CREATE OR REPLACE FUNCTION @schema@.keep_limits(t timestamptz, p_names text[], p_declarations jsonb[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM FROM @schema@.tool_limits m WHERE m.tool_name = ANY (p_names) ORDER BY m.tool_name FOR NO KEY UPDATE;
    DELETE FROM @schema@.tool_limits m USING unnest(p_names, p_declarations) AS i(name, declaration)
     WHERE m.tool_name = i.name AND NOT coalesce(i.declaration, '{}') ?| '{max_in_flight_total,rate_per_s}';
    INSERT INTO @schema@.tool_limits AS m (tool_name, max_in_flight, rate_per_s, burst, tokens, tokens_at)
    SELECT i.name, ceil(least(@schema@.declared(i.declaration, 'max_in_flight_total'), 1000000))::integer,
           d.rate, d.burst, d.burst, t
      FROM unnest(p_names, p_declarations) AS i(name, declaration)
     CROSS JOIN LATERAL (SELECT @schema@.declared(i.declaration, 'rate_per_s')::float8,
                                greatest(1, coalesce(@schema@.declared(i.declaration, 'rate_burst'),
                                                     @schema@.declared(i.declaration, 'rate_per_s')))::float8) AS d(rate, burst)
     WHERE i.declaration ?| '{max_in_flight_total,rate_per_s}'
     ORDER BY i.name
        ON CONFLICT (tool_name) DO UPDATE
       SET max_in_flight = excluded.max_in_flight, rate_per_s = excluded.rate_per_s, burst = excluded.burst,
           tokens = least(coalesce(@schema@.bucket(m, t), m.tokens), excluded.burst), tokens_at = t;
END
$$;
