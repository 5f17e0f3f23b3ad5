-- batch_check(p_verb, p_lengths) → integer                                   internal, @schema@
--
-- What every interface function of the ledger refuses before it looks at a row: an isolation level other than READ
-- COMMITTED (25001: each statement must see what was committed while it waited for a lock), parallel arrays of unequal
-- length or NULL, and batches above control.max_batch (22023). Returns the number of items.
--
-- Locks: none. Tables: control.
CREATE OR REPLACE FUNCTION @schema@.batch_check(p_verb text, p_lengths integer[]) RETURNS integer
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
DECLARE
    v_n integer := p_lengths[1];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION '%: isolation must be read committed, not %', p_verb, current_setting('transaction_isolation')
            USING ERRCODE = '25001';
    END IF;
    IF v_n IS NULL OR array_position(p_lengths, NULL) IS NOT NULL OR NOT v_n = ALL (p_lengths) THEN
        RAISE EXCEPTION '%: arrays must be given and be of one length, not %', p_verb, p_lengths
            USING ERRCODE = '22023';
    END IF;
    IF v_n > (SELECT max_batch FROM @schema@.control) THEN
        RAISE EXCEPTION '%: a batch of % is above the ceiling of %', p_verb, v_n,
            (SELECT max_batch FROM @schema@.control) USING ERRCODE = '22023';
    END IF;
    RETURN v_n;
END
$$;
