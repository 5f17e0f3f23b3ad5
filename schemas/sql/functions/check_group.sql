-- The parallel arrays of a group inside a batch (a commit's intents, waits, events …): one length, at most p_max rows,
-- and each row's item points into the batch. A breach is a bug of the caller (22023).
CREATE OR REPLACE FUNCTION @schema@.check_group(p_verb text, p_group text, p_lengths integer[], p_items integer[],
    p_batch integer, p_max integer DEFAULT 20000) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF array_position(p_lengths, NULL) IS NOT NULL OR NOT p_lengths[1] = ALL (p_lengths) OR p_lengths[1] > p_max THEN
        RAISE EXCEPTION '%: arrays of % must be given and be of one length up to %, not %', p_verb, p_group, p_max,
            p_lengths USING ERRCODE = '22023';
    END IF;
    IF p_lengths[1] > 0 AND EXISTS (SELECT 1 FROM unnest(p_items) AS i(item)
                                    WHERE i.item IS NULL OR i.item NOT BETWEEN 1 AND p_batch) THEN
        RAISE EXCEPTION '%: a row of % names no item of the batch', p_verb, p_group USING ERRCODE = '22023';
    END IF;
END $$;
