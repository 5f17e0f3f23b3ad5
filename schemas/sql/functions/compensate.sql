-- compensate(p_operation_ids[], p_kind[], p_tool[], p_body[], p_digest[], p_capability[], p_declaration[], p_external_key[],
--            p_by[]) → item, outcome, operation_id, run_id, status, detail                  interface; worker, operator
--
-- Registers what undoes an operation of a run that has ended, as an operation of its own: claimed, sent, settled and
-- doubted like any other. The one undone keeps its state.
--   p_operation_ids  the operation to be undone
--   p_kind           compensate (it has succeeded) or remote_cancel (it may be at work: dispatching, or in doubt)
--   p_tool           the tool that its stored declaration names for that (compensate_tool, remote_cancel_tool)
--   p_body … p_declaration   the request, and that tool's declaration, as in an intent of commit
--   p_external_key   NULL: its operation_id; or the same with the first run of the submission
-- Its identity: step `<step>.compensate` or `<step>.remote_cancel` of the same run, with the effect_version of what it
-- undoes. It can be registered once.
--
-- Outcomes: registered; exists (the same was registered before; status says how it stands); missing; not_allowed (detail:
--           the run has not ended, its state has nothing to undo, another tool, its name is taken, a member is missing).
-- Errors: 22023, also for an unknown kind; 25001.
-- Locks: runs, operations to be undone (in key order), then inserts in key order.
-- Tables: control, agent_runs, worker_leases, tool_operations, operation_evidence.
CREATE OR REPLACE FUNCTION @iface@.compensate(p_operation_ids text[], p_kind text[], p_tool text[], p_body jsonb[],
    p_digest text[], p_capability text[], p_declaration jsonb[], p_external_key text[], p_by text[])
RETURNS TABLE (item integer, outcome text, operation_id text, run_id uuid, status text, detail text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET lock_timeout = '5s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_material = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_outcomes text[];
    v_details  text[];
    v_names    text[];
    v_steps    text[];
    t          timestamptz;
BEGIN
    IF EXISTS (SELECT FROM unnest(p_kind) AS u(kind) WHERE coalesce(u.kind, '') NOT IN ('compensate', 'remote_cancel')) THEN
        RAISE EXCEPTION 'compensate: a kind is neither compensate nor remote_cancel' USING ERRCODE = '22023';
    END IF;
    PERFORM @schema@.record_lock('compensate', p_operation_ids, ARRAY[cardinality(p_operation_ids), cardinality(p_kind),
        cardinality(p_tool), cardinality(p_body), cardinality(p_digest), cardinality(p_capability),
        cardinality(p_declaration), cardinality(p_external_key), cardinality(p_by)], p_body || p_declaration);

    t := clock_timestamp();
    SELECT array_agg(d.name ORDER BY d.ord), array_agg(d.step ORDER BY d.ord),
           array_agg(CASE WHEN d.target IS NULL THEN 'missing'
                          WHEN d.why IS NOT NULL THEN 'not_allowed'
                          WHEN d.known THEN 'exists' ELSE 'registered' END ORDER BY d.ord),
           array_agg(d.why ORDER BY d.ord)
      INTO v_names, v_steps, v_outcomes, v_details
      FROM (SELECT i.ord, o.operation_id AS target, n.name, n.step, e.operation_id IS NOT NULL AS known, CASE
               WHEN e.operation_id IS NOT NULL THEN CASE
                   WHEN e.compensates IS DISTINCT FROM o.operation_id OR e.tool_name IS DISTINCT FROM i.tool
                        OR e.request_digest IS DISTINCT FROM i.digest
                       THEN n.name || ' is registered with another operation, tool or request' END
               WHEN r.status IN ('pending', 'running') THEN 'its run has not ended'
               WHEN o.compensates IS NOT NULL THEN 'it undoes another operation itself'
               WHEN coalesce(i.tool, '') = '' OR i.tool IS DISTINCT FROM o.declaration ->> (i.kind || '_tool')
                   THEN 'its declaration names ' || coalesce(o.declaration ->> (i.kind || '_tool'), 'no tool') || ' for that'
               WHEN i.kind = 'compensate' AND o.status <> 'succeeded' THEN 'it has not succeeded: ' || o.status
               WHEN i.kind = 'remote_cancel' AND NOT (o.status = 'dispatching'
                        OR (o.status = 'unknown' AND o.attempts <> o.attempts_not_sent))
                   THEN 'it is not at work: ' || o.status
               WHEN i.body IS NULL OR coalesce(i.digest, '') = '' THEN 'a member is missing'
               WHEN coalesce(i.capability, 'none') NOT IN ('idempotency_key', 'deterministic_id', 'query', 'none')
                   THEN 'unknown capability'
               WHEN length(n.name) > 200 THEN 'its identity is longer than 200'
               WHEN i.external_key NOT IN (n.name, @schema@.operation_key(r.tenant_id, r.first_run_id, n.step, o.effect_version))
                   THEN 'external_key must be its operation_id, or that of the submission''s first run' END AS why
              FROM unnest(p_operation_ids, p_kind, p_tool, p_body, p_digest, p_capability, p_external_key) WITH ORDINALITY
                   AS i(operation_id, kind, tool, body, digest, capability, external_key, ord)
              LEFT JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
              LEFT JOIN @schema@.agent_runs r ON r.run_id = o.run_id
             CROSS JOIN LATERAL (SELECT o.step_id || '.' || i.kind, @schema@.operation_key(
                                     r.tenant_id, r.run_id, o.step_id || '.' || i.kind, o.effect_version) OFFSET 0) AS n(step, name)
              LEFT JOIN @schema@.tool_operations e ON e.operation_id = n.name) d;

    INSERT INTO @schema@.operation_evidence (at, operation_id, epoch, kind, detail)
    SELECT t, o.operation_id, l.epoch, 'undone_by',
           jsonb_build_object('kind', i.kind, 'operation_id', v_names[i.ord], 'by', i.by, 'login', session_user)
      FROM unnest(p_operation_ids, p_kind, p_by, v_outcomes) WITH ORDINALITY AS i(operation_id, kind, by, outcome, ord)
      JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
      LEFT JOIN @schema@.worker_leases l ON l.run_id = o.run_id
     WHERE i.outcome = 'registered' ORDER BY i.ord;
    UPDATE @schema@.tool_operations o SET undo = NULL
      FROM unnest(p_operation_ids, p_kind, v_outcomes) AS i(operation_id, kind, outcome)
     WHERE o.operation_id = i.operation_id AND o.undo = i.kind AND i.outcome IN ('registered', 'exists');
    INSERT INTO @schema@.tool_operations (operation_id, run_id, step_id, effect_version, tool_name, request_digest,
        request_body, status, capability, declaration, retention_ms, external_key, compensates, detached, created_at,
        updated_at)
    SELECT v_names[i.ord], o.run_id, v_steps[i.ord], o.effect_version, i.tool, i.digest, i.body, 'prepared',
           coalesce(i.capability, 'none'), coalesce(i.declaration, '{}'),
           trunc(@schema@.declared(i.declaration, 'retention_ms'))::bigint, coalesce(i.external_key, v_names[i.ord]),
           o.operation_id, true, t, t -- detached: its run has ended
      FROM unnest(p_operation_ids, p_tool, p_body, p_digest, p_capability, p_declaration, p_external_key, v_outcomes)
           WITH ORDINALITY AS i(operation_id, tool, body, digest, capability, declaration, external_key, outcome, ord)
      JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
     WHERE i.outcome = 'registered' ORDER BY v_names[i.ord];

    RETURN QUERY
    SELECT g.n, v_outcomes[g.n], v_names[g.n], o.run_id, e.status, v_details[g.n]
      FROM generate_series(1, cardinality(p_operation_ids)) AS g(n)
      LEFT JOIN @schema@.tool_operations o ON o.operation_id = p_operation_ids[g.n]
      LEFT JOIN @schema@.tool_operations e ON e.operation_id = v_names[g.n]
     ORDER BY g.n;
END
$$;

-- undo_due(p_limit, p_tools[]) → rows                                        interface; worker, operator
--
-- What the policies of cancelled runs ask for and nobody has registered yet: operations whose run was cancelled while they
-- were in flight, and whose tool declares remote_cancel (while they are at work) or compensate (once they have succeeded).
-- p_tools: only operations of these tools (NULL: all). undo_tool: the tool that carries it out. compensation_id: the
-- identity it will get. It only informs: compensate() decides, and two who do the same do it once.
-- Locks: none. Tables: tool_operations, agent_runs.
CREATE OR REPLACE FUNCTION @iface@.undo_due(p_limit integer, p_tools text[])
RETURNS TABLE (operation_id text, kind text, tool_name text, undo_tool text, run_id uuid, tenant_id text, task_id text,
    step_id text, effect_version integer, request_digest text, request_body jsonb, status text, remote_id text, result jsonb,
    external_key text, declaration jsonb, compensation_id text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET lock_timeout = '2s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_material = off
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    PERFORM @schema@.batch_check('undo_due', ARRAY[p_limit]);
    RETURN QUERY
    SELECT o.operation_id, o.undo, o.tool_name, o.declaration ->> (o.undo || '_tool'), o.run_id, r.tenant_id, r.task_id,
           o.step_id, o.effect_version, o.request_digest, o.request_body, o.status, o.remote_id, o.result, o.external_key,
           o.declaration, @schema@.operation_key(r.tenant_id, r.run_id, o.step_id || '.' || o.undo, o.effect_version)
      FROM @schema@.tool_operations o JOIN @schema@.agent_runs r ON r.run_id = o.run_id
     WHERE ((o.undo = 'remote_cancel' AND o.status IN ('dispatching', 'unknown'))
            OR (o.undo = 'compensate' AND o.status = 'succeeded'))
       AND (o.status <> 'unknown' OR o.attempts <> o.attempts_not_sent)
       AND (p_tools IS NULL OR o.tool_name = ANY (p_tools))
     ORDER BY o.tool_name, o.operation_id LIMIT p_limit;
END
$$;
