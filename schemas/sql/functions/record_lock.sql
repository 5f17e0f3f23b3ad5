-- record_lock(p_verb, p_operation_ids[], p_lengths[], p_bodies[]) → run ids  internal, @schema@
--
-- The locking half of record_result, record_not_sent and record_unknown: refuses a malformed batch (22023), then locks
-- the runs of the operations and after them the operations, each in key order. An operation's run never changes, so it
-- may be read before the lock. Waits for both: an answer that arrived must not be dropped because somebody is writing.
-- Locks: runs, operations. Tables: control, tool_operations, agent_runs.
CREATE OR REPLACE FUNCTION @schema@.record_lock(p_verb text, p_operation_ids text[], p_lengths integer[],
                                                p_bodies jsonb[]) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_runs uuid[];
BEGIN
    PERFORM @schema@.record_check(p_verb, p_operation_ids, p_lengths, p_bodies);
    SELECT array_agg(DISTINCT o.run_id) INTO v_runs
      FROM @schema@.tool_operations o WHERE o.operation_id = ANY (p_operation_ids);
    PERFORM FROM @schema@.agent_runs r WHERE r.run_id = ANY (v_runs) ORDER BY r.run_id FOR NO KEY UPDATE;
    PERFORM FROM @schema@.tool_operations o WHERE o.operation_id = ANY (p_operation_ids)
      ORDER BY o.operation_id FOR NO KEY UPDATE;
    RETURN v_runs;
END $$;

-- record_check(…): refuses (22023) what no batch about operations may be.
CREATE OR REPLACE FUNCTION @schema@.record_check(p_verb text, p_operation_ids text[], p_lengths integer[], p_bodies jsonb[])
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_max integer;
BEGIN
    PERFORM @schema@.batch_check(p_verb, p_lengths);
    IF (SELECT count(*) <> count(DISTINCT u.id) + count(*) FILTER (WHERE u.id IS NULL)
          FROM unnest(p_operation_ids) u (id)) THEN
        RAISE EXCEPTION '%: an operation is named twice', p_verb USING ERRCODE = '22023';
    END IF;
    SELECT c.max_body_bytes INTO v_max FROM @schema@.control c;
    IF EXISTS (SELECT FROM unnest(p_bodies) u (body) WHERE pg_column_size(u.body) > v_max) THEN
        RAISE EXCEPTION '%: a result or its evidence is larger than % bytes', p_verb, v_max USING ERRCODE = '22023';
    END IF;
END $$;

-- claim_existed(…) → boolean: whether this ledger ever gave out that claim, by the evidence every claim leaves.
CREATE OR REPLACE FUNCTION @schema@.claim_existed(p_operation_id text, p_owner text, p_revision bigint,
                                                  p_attempt integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM @schema@.operation_evidence e
                    WHERE e.operation_id = p_operation_id AND e.kind = 'claimed' AND e.dispatch_owner = p_owner
                      AND e.dispatch_revision = p_revision AND e.attempt = p_attempt);
END $$;
