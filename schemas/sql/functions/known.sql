-- known(p_kind) → name, digest, declaration, pod, seen_at                    interface; worker, operator, viewer
--
-- The handlers or tools (p_kind 'handler', 'tool', NULL: both) that any pod ever declared, with the last time one did.
-- Locks: none. Tables: registry.
CREATE OR REPLACE FUNCTION @iface@.known(p_kind text)
RETURNS TABLE (kind text, name text, digest text, declaration jsonb, pod text, seen_at timestamptz)
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, @schema@, pg_temp
AS $$
    SELECT r.kind, r.name, r.digest, r.declaration, r.pod, r.seen_at
      FROM @schema@.registry r WHERE p_kind IS NULL OR r.kind = p_kind ORDER BY r.kind, r.name
$$;
