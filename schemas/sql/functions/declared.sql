-- What SQL reads out of a tool's declaration, and what follows from it.                              internal, @schema@

-- declared(p_declaration, p_name) → numeric: a number, NULL when it is absent or none, cut to what can be added to a time.
CREATE OR REPLACE FUNCTION @schema@.declared(p_declaration jsonb, p_name text) RETURNS numeric
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN jsonb_typeof(p_declaration -> p_name) = 'number'
            THEN least(greatest((p_declaration ->> p_name)::numeric, 0), 3155760000000) END;

-- has_query(…): whether the remote can be asked what became of an operation.
CREATE OR REPLACE FUNCTION @schema@.has_query(p_capability text, p_declaration jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN p_capability IN ('query', 'deterministic_id')
       OR (p_capability = 'idempotency_key' AND coalesce(p_declaration -> 'query' = 'true', false));

-- absent_final_at(…): from when on "not found" is a fact: once nothing of ours can be on its way any more (the last claim's
-- deadline and the request time-out) and the tool's absent_is_final_after has passed. A gate that was closed or opened since
-- may stand for claims of a lost history, so it counts from there, too. NULL: never; only a tool that declared it says so.
CREATE OR REPLACE FUNCTION @schema@.absent_final_at(p_capability text, p_declaration jsonb, p_dispatch_until timestamptz,
                                                    p_gate_changed_at timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN p_capability IN ('query', 'deterministic_id')
            THEN greatest(p_dispatch_until, p_gate_changed_at)
                 + (coalesce(@schema@.declared(p_declaration, 'timeout_ms'), 600000)::float8
                    + @schema@.declared(p_declaration, 'absent_is_final_after_ms')::float8) * interval '1 millisecond' END;

-- policy_of(…): what the declaration wants done about an effect in flight whose run is cancelled.
CREATE OR REPLACE FUNCTION @schema@.policy_of(p_declaration jsonb) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN p_declaration ->> 'on_cancel' IN ('remote_cancel', 'compensate')
            THEN p_declaration ->> 'on_cancel' ELSE 'finish' END;

-- operation_key(…): the one form of an operation's identity.
CREATE OR REPLACE FUNCTION @schema@.operation_key(p_tenant text, p_run uuid, p_step text, p_version integer) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN p_tenant || '/' || p_run || '/' || p_step || '/' || p_version;

-- undo_of(…): the policy, where a tool is declared to carry it out; else NULL.
CREATE OR REPLACE FUNCTION @schema@.undo_of(p_declaration jsonb) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN p_declaration ->> 'on_cancel' = 'remote_cancel' AND p_declaration ->> 'remote_cancel_tool' <> '' THEN 'remote_cancel'
            WHEN p_declaration ->> 'on_cancel' = 'compensate' AND p_declaration ->> 'compensate_tool' <> '' THEN 'compensate' END;
