-- record_not_sent(p_operation_ids[], p_owners[], p_revisions[], p_attempts[], p_retry_ms[], p_evidence[])
--                                     → item, outcome, run_id, woke, epoch, status          interface; worker
--
-- The holder of a claim says that it did not send (the last hook never let the attempt through), or that the remote
-- itself says it did not act (429): the one thing that takes an attempt back. When no other attempt may have been sent
-- the operation is `unsent`: unknown by name only, claimable again for every capability after p_retry_ms (NULL: a
-- back-off by attempts), not published as unknown; of a terminal run that it is not detached from it is cancelled here
-- and now, as it would have been while it was prepared. When another attempt may have been sent it stays in doubt.
--
-- Outcomes: recorded (also by a latest claim that ran out meanwhile: only it can know; asked again: the same, counted
--           once), late (that claim existed, a later one took over: evidence), missing (no such operation, or, with a
--           status, no such claim). status: unknown or cancelled.
-- Errors: 22023, 25001. Locks and tables: record_open().
CREATE OR REPLACE FUNCTION @iface@.record_not_sent(
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
    RETURN QUERY SELECT * FROM @schema@.record_open('record_not_sent', p_operation_ids, p_owners, p_revisions,
                                                    p_attempts, p_retry_ms, p_evidence);
END
$$;
