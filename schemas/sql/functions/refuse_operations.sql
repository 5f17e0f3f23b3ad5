-- refuse_operations(p_t, p_verb, p_operation_ids[], p_owners[], p_outcomes[])  internal, @schema@
--
-- Keeps the refusals among the outcomes of a record_* call, by the run and the term of its lease: a dispatch session
-- that went on after its claim ran out is a stale worker like any other. Operations that do not exist leave no trace.
-- Tables: tool_operations, worker_leases, refusals.
CREATE OR REPLACE FUNCTION @schema@.refuse_operations(p_t timestamptz, p_verb text, p_operation_ids text[],
                                                      p_owners text[], p_outcomes text[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    x record;
BEGIN
    IF NOT p_outcomes && ARRAY['late', 'missing', 'digest_mismatch', 'contradiction'] THEN
        RETURN;
    END IF;
    SELECT array_agg(o.run_id) AS runs, array_agg(l.epoch) AS epochs, array_agg(i.outcome) AS reasons,
           array_agg(i.owner) AS owners
      INTO x
      FROM unnest(p_operation_ids, p_owners, p_outcomes) i (operation_id, owner, outcome)
      JOIN @schema@.tool_operations o ON o.operation_id = i.operation_id
      JOIN @schema@.worker_leases l ON l.run_id = o.run_id
     WHERE i.outcome IN ('late', 'missing', 'digest_mismatch', 'contradiction');
    PERFORM @schema@.refuse(p_t, p_verb, x.runs, x.epochs, x.reasons, x.owners, x.epochs);
END $$;
