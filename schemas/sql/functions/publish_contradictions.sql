-- publish_contradictions(p_t, p_operation_ids[], p_attempts[], p_verdicts[], p_remote_ids[])          internal, @schema@
--
-- A fact against a settled operation changes nothing; it is published, once: a fact that is delivered again is not another
-- contradiction. Call it before the evidence is written; attempt NULL: the fact speaks of the operation as such.
-- What a caller must hold: the locks of the operations' runs.
-- Tables: operation_evidence, and those of emit_operations.
CREATE OR REPLACE FUNCTION @schema@.publish_contradictions(p_t timestamptz, p_operation_ids text[], p_attempts integer[],
    p_verdicts text[], p_remote_ids text[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_ids   text[];
    v_facts jsonb[];
BEGIN
    SELECT array_agg(i.operation_id ORDER BY i.ord),
           array_agg(jsonb_build_object('verdict', i.verdict, 'remote_id', i.remote_id, 'attempt', i.attempt) ORDER BY i.ord)
      INTO v_ids, v_facts
      FROM unnest(p_operation_ids, p_attempts, p_verdicts, p_remote_ids) WITH ORDINALITY
           AS i(operation_id, attempt, verdict, remote_id, ord)
     WHERE NOT EXISTS (
           SELECT FROM @schema@.operation_evidence e
            WHERE e.operation_id = i.operation_id AND e.kind = 'contradiction' AND e.attempt IS NOT DISTINCT FROM i.attempt
              AND e.detail ->> 'verdict' = i.verdict AND e.detail ->> 'remote_id' IS NOT DISTINCT FROM i.remote_id);
    IF v_ids IS NOT NULL THEN
        PERFORM @schema@.emit_operations(p_t, v_ids, array_fill('operation.contradiction'::text, ARRAY[cardinality(v_ids)]),
                                         v_facts);
    END IF;
END $$;
