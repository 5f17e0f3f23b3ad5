-- claim_take(p_owner, p_token, p_ids[], t, p_until)                          internal, @schema@
--
-- The writing half of a claim over operations that the caller has locked and found claimable: a new attempt each,
-- its evidence, and the token with what it got. A token that got nothing is kept, too: a call that arrives late, after its
-- repetition was answered, must not take anything for nobody; but that row alone need not wait for the disk, or every idle
-- pod would flush the log at each look. (A standby keeps nothing, and gives nothing out.)
-- A query of the attempt before is over. Age counts for the escalation from the first attempt in doubt, too.
-- first_sent_at is the start of the first attempt that may have been sent; the retention of a key counts from there.
-- Locks: none new. Tables: tool_operations, worker_leases, operation_evidence, claims.
CREATE OR REPLACE FUNCTION @schema@.claim_take(p_owner text, p_token uuid, p_ids text[], t timestamptz,
                                               p_until timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
BEGIN
    IF p_ids IS NULL THEN
        IF current_setting('transaction_read_only') = 'on' THEN
            RETURN;
        END IF;
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    WITH taken AS (
        UPDATE @schema@.tool_operations o
           SET status = 'dispatching', dispatch_owner = p_owner, dispatch_until = p_until,
               revision = o.revision + 1, claimed_revision = o.revision + 1, attempts = o.attempts + 1,
               claimed_attempt = o.attempts + 1,
               first_sent_at = CASE WHEN o.attempts = o.attempts_not_sent THEN t ELSE o.first_sent_at END,
               escalate_at = CASE WHEN o.attempts = o.attempts_not_sent
                                  THEN t + @schema@.declared(o.declaration, 'escalate_after_ms')::float8 * interval '1 millisecond'
                                  ELSE o.escalate_at END,
               query_owner = NULL, query_since = NULL, query_until = NULL,
               not_before = NULL, updated_at = t
         WHERE o.operation_id = ANY (p_ids)
        RETURNING o.operation_id, o.run_id, o.attempts, o.revision
    ), seen AS (
        INSERT INTO @schema@.operation_evidence (at, operation_id, attempt, dispatch_owner, dispatch_revision, epoch,
                                                 kind, detail)
        SELECT t, k.operation_id, k.attempts, p_owner, k.revision, l.epoch, 'claimed',
               jsonb_build_object('token', p_token, 'until', p_until)
          FROM taken k LEFT JOIN @schema@.worker_leases l ON l.run_id = k.run_id
    )
    INSERT INTO @schema@.claims (token, owner, operations, revisions, made_at)
    SELECT p_token, p_owner, coalesce(array_agg(k.operation_id), '{}'), coalesce(array_agg(k.revision), '{}'), t
      FROM taken k;
END
$$;
