-- barrier() → outcome                                                        interface; worker
--
-- The durability barrier: one small write. When the call has answered, what was committed before it began is as durable
-- as its own commit is; in strict mode that is on the synchronous standby. What is read is not yet what is replicated,
-- so the relay calls it between reading a batch and publishing it.
-- Outcomes: ok. Locks and tables: none.
CREATE OR REPLACE FUNCTION @iface@.barrier()
RETURNS TABLE (outcome text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
BEGIN
    PERFORM pg_logical_emit_message(true, 'holdfast', 'barrier');
    RETURN QUERY SELECT 'ok';
END
$$;
