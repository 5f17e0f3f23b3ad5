-- take_again(p_owner, p_token, p_run_ids[]): a call of acquire (p_run_ids: what it names) or claim (NULL) asked again. Internal.
-- Answers what that token took and still holds, under the row locks; takes nothing new and extends nothing.
-- Outcomes: acquired; token_used (it ran out, was released, is another owner's, or this token never had it); terminal.
-- Locks: leases, runs.
CREATE OR REPLACE FUNCTION @schema@.take_again(p_owner text, p_token uuid, p_run_ids uuid[])
RETURNS TABLE (item integer, outcome text, run_id uuid, epoch bigint, revision bigint, tenant_id text, task_id text,
    handler text, attempt integer, failures integer, takeover boolean, takeover_ms bigint, started boolean,
    checkpoint jsonb, input jsonb, woke_reason text, operations jsonb, signals jsonb, earlier jsonb,
    deadline timestamptz, first_run_id uuid, prev_run_id uuid, traceparent text, tracestate text)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    v_run_ids  uuid[];
    v_epochs   bigint[];
    v_ids      uuid[];
    v_outcomes text[];
    t          timestamptz;
BEGIN
    SELECT c.run_ids, c.epochs INTO v_run_ids, v_epochs FROM @schema@.claims c
    WHERE c.token = p_token AND c.owner = p_owner;
    v_ids := coalesce(p_run_ids, v_run_ids, '{}');
    PERFORM 1 FROM @schema@.worker_leases l WHERE l.run_id = ANY (v_ids) ORDER BY l.run_id FOR NO KEY UPDATE;
    PERFORM 1 FROM @schema@.agent_runs r WHERE r.run_id = ANY (v_ids) ORDER BY r.run_id FOR NO KEY UPDATE;
    t := clock_timestamp();
    SELECT array_agg(CASE WHEN r.run_id IS NULL THEN 'missing'
                          WHEN r.status NOT IN ('pending', 'running') THEN 'terminal'
                          WHEN l.owner = p_owner AND l.expires_at > t
                               AND l.epoch = v_epochs[array_position(v_run_ids, i.run_id)] THEN 'acquired'
                          ELSE 'token_used' END ORDER BY i.ord)
    INTO v_outcomes
    FROM unnest(v_ids) WITH ORDINALITY AS i(run_id, ord)
    LEFT JOIN @schema@.worker_leases l ON l.run_id = i.run_id
    LEFT JOIN @schema@.agent_runs r ON r.run_id = i.run_id;
    RETURN QUERY SELECT c.* FROM @schema@.step_contexts(@schema@.ordinals(cardinality(v_ids)), v_ids, v_outcomes,
                                                        NULL, NULL, NULL) c;
END $$;
