-- due_again(p_capability, p_declaration, p_first_sent_at, p_retention_ms, t, p_retry_ms) → timestamptz    internal, @schema@
--
-- When an operation that may have been sent is looked at again: queried, or sent under its own key. NULL: nothing but a
-- person can settle it (`none`, or a key that the remote will have forgotten by then and cannot be asked about), and no
-- scan for due ones ever meets it.
CREATE OR REPLACE FUNCTION @schema@.due_again(p_capability text, p_declaration jsonb, p_first_sent_at timestamptz,
                                              p_retention_ms bigint, t timestamptz, p_retry_ms bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE WHEN @schema@.has_query(p_capability, p_declaration)
                     OR @schema@.same_key_is_safe(p_capability, p_first_sent_at, p_retention_ms,
                                                  t + p_retry_ms * interval '1 millisecond')
                THEN t + p_retry_ms * interval '1 millisecond' END
$$;
DROP FUNCTION IF EXISTS @schema@.due_again(text, timestamptz, bigint, timestamptz, bigint);

-- back_off_ms(p_attempts) → bigint: where no caller says how long to wait: 2, 4, 8 … seconds, at most 5 minutes.
CREATE OR REPLACE FUNCTION @schema@.back_off_ms(p_attempts integer) RETURNS bigint
LANGUAGE sql IMMUTABLE
AS $$ SELECT (1000 * least(300, 2 ^ least(p_attempts, 10)))::bigint $$;
