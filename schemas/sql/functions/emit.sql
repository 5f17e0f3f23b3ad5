-- Puts events into the outbox, in the order of the arrays.
-- What a caller must hold: the lock of each event's run (of its task where there is no run), so that the sequence drawn
-- here orders the events of one run as they are committed.
--   p_t          the caller's one clock reading
--   p_run_ids    NULL for an event that belongs to no run
--   p_bodies     the type's own member: {"output":…} | {"failure":…} | {"operation":…} | {}
-- The trace context is the one the run was submitted with.
CREATE OR REPLACE FUNCTION @schema@.emit(p_t timestamptz, p_run_ids uuid[], p_tenants text[], p_tasks text[],
    p_types text[], p_epochs bigint[], p_revisions bigint[], p_bodies jsonb[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_shards   integer;
    v_timeline bigint;
BEGIN
    IF coalesce(cardinality(p_types), 0) = 0 THEN
        RETURN;
    END IF;
    SELECT c.shards, @schema@.server_timeline() INTO v_shards, v_timeline FROM @schema@.control c;
    INSERT INTO @schema@.outbox_events (seq, event_id, shard, tenant_id, task_id, run_id, type, epoch, revision,
                                        timeline, at, body, traceparent, tracestate)
    SELECT nextval('@schema@.outbox_seq'), gen_random_uuid(), @schema@.shard_of(e.tenant_id, e.task_id, v_shards),
           e.tenant_id, e.task_id, e.run_id, e.type, coalesce(e.epoch, 0), coalesce(e.revision, 0),
           v_timeline, p_t, coalesce(e.body, '{}'), e.traceparent, e.tracestate
    FROM (SELECT u.*, d.traceparent, d.tracestate
          FROM unnest(p_run_ids, p_tenants, p_tasks, p_types, p_epochs, p_revisions, p_bodies)
               WITH ORDINALITY AS u(run_id, tenant_id, task_id, type, epoch, revision, body, ord)
          LEFT JOIN LATERAL (SELECT x.traceparent, x.tracestate FROM @schema@.run_data x
                             WHERE x.run_id = u.run_id OFFSET 0) d ON true
          ORDER BY u.ord OFFSET 0) e;
END $$;
