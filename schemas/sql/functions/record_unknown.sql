-- record_unknown(p_operation_ids[], p_owners[], p_revisions[], p_attempts[], p_retry_ms[], p_evidence[])
--                                     → item, outcome, run_id, woke, epoch, status          interface; worker
--
-- The holder of a claim says that it may have sent and does not know what came of it. The operation is `unknown` with
-- that evidence, until a remote fact, a same-key retry that its declaration makes safe (due after p_retry_ms; NULL: a
-- back-off by attempts), or a person settles it. Published when the operation comes into doubt, not again by each
-- further attempt.
--
-- Outcomes: recorded (asked again: the same), late (that claim existed; it ran out, or a later one took over:
--           evidence), missing (no such operation, or, with a status, no such claim).
-- Errors: 22023, 25001. Locks and tables: record_open().
CREATE OR REPLACE FUNCTION @iface@.record_unknown(
    p_operation_ids text[], p_owners text[], p_revisions bigint[], p_attempts integer[], p_retry_ms bigint[],
    p_evidence jsonb[])
RETURNS TABLE (item integer, outcome text, run_id uuid, woke boolean, epoch bigint, status text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET lock_timeout = '5s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
BEGIN
    RETURN QUERY SELECT * FROM @schema@.record_open('record_unknown', p_operation_ids, p_owners, p_revisions,
                                                    p_attempts, p_retry_ms, p_evidence);
END
$$;
