-- events_delete(p_shard, p_owner, p_epoch, p_batch, p_seqs[], p_event_ids[]) → outcome, deleted    interface; worker
--
-- Removes rows that Kafka has durably: by sequence and UUID both, for sequences repeat after a failover. Not gated: what
-- is published is published. p_batch is the number of that batch: relay_positions keeps the highest one whose rows are
-- gone, by which a relay that finds an older identity in Kafka sees that its memory there is not the latest. NULL: rows
-- found in the result topic by a recovery, which is no batch.
-- Asked again it deletes nothing more and answers deleted with 0: rows that are not there are no error.
--
-- Outcomes: deleted, not_holder (of 'shard:<n>' in that epoch at this moment).
-- Errors: 22023 (unequal lengths, more than 10,000, no such shard), 25001.
-- Locks: service lease, outbox rows, relay position. Tables: service_leases, outbox_events, relay_positions, control.
CREATE OR REPLACE FUNCTION @iface@.events_delete(p_shard integer, p_owner text, p_epoch bigint, p_batch bigint,
                                                 p_seqs bigint[], p_event_ids uuid[])
RETURNS TABLE (outcome text, deleted integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
SET lock_timeout = '2s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    v_deleted integer;
BEGIN
    PERFORM @schema@.service_check('events_delete', 'shard:' || p_shard, p_owner, 1);
    IF cardinality(p_seqs) IS DISTINCT FROM cardinality(p_event_ids) OR coalesce(cardinality(p_seqs), 10001) > 10000 THEN
        RAISE EXCEPTION 'events_delete: up to 10000 sequences and as many UUIDs must be given' USING ERRCODE = '22023';
    END IF;
    IF NOT @schema@.service_holds('shard:' || p_shard, p_owner, p_epoch) THEN
        RETURN QUERY SELECT 'not_holder', 0;
        RETURN;
    END IF;
    DELETE FROM @schema@.outbox_events e
     USING unnest(p_seqs, p_event_ids) i (seq, event_id)
     WHERE e.shard = p_shard AND e.seq = i.seq AND e.event_id = i.event_id;
    GET DIAGNOSTICS v_deleted = ROW_COUNT;
    INSERT INTO @schema@.relay_positions AS p (shard, last_batch, updated_at)
    SELECT p_shard, p_batch, clock_timestamp() WHERE p_batch IS NOT NULL
        ON CONFLICT (shard) DO UPDATE SET last_batch = excluded.last_batch, updated_at = excluded.updated_at
     WHERE p.last_batch < excluded.last_batch;
    RETURN QUERY SELECT 'deleted', v_deleted;
END
$$;
