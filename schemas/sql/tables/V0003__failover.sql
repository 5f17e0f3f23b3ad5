-- A lost history (protocol section 10).

-- The attempt of the latest claim. Its identity is owner, revision and this number; `attempts` also counts attempts that a
-- lost history may have made, and those must not take the latest claim's word away from it.
ALTER TABLE @schema@.tool_operations ADD COLUMN claimed_attempt integer;
UPDATE @schema@.tool_operations SET claimed_attempt = attempts WHERE dispatch_owner IS NOT NULL;

ALTER TABLE @schema@.control
    -- Somebody found that Kafka remembers more than this database: it was restored. Until the gate is opened.
    ADD COLUMN set_back          boolean NOT NULL DEFAULT false,
    -- When it was first noticed that this server is not on the history that is known (NULL: it is), and until when claims
    -- that were given out on the lost one can still send: the largest term of a claim from then on.
    ADD COLUMN foreign_since     timestamptz,
    ADD COLUMN lost_claims_until timestamptz;

-- Has one parameter more.
DROP FUNCTION IF EXISTS @iface@.gate_close(text, text);
