-- same_key_is_safe(p_capability, p_first_sent_at, p_retention_ms, p_until) → boolean    internal, @schema@
--
-- Whether a request that may have been sent may be sent again under its own key up to p_until: only for a tool that
-- remembers keys, and only while it still remembers the first attempt that may have reached it.
CREATE OR REPLACE FUNCTION @schema@.same_key_is_safe(p_capability text, p_first_sent_at timestamptz,
                                                     p_retention_ms bigint, p_until timestamptz) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
    SELECT coalesce(p_capability = 'idempotency_key'
                    AND p_until <= p_first_sent_at + p_retention_ms * interval '1 millisecond', false)
$$;
