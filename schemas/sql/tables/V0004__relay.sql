-- What the relay has compared with Kafka since this server started, and who relays.

-- The start of the server under which this shard was compared with what Kafka remembers of it.
ALTER TABLE @schema@.relay_positions ADD COLUMN checked_start timestamptz;

ALTER TABLE @schema@.control
    -- After a start of the server nothing is claimed before every shard was compared. Kept by `holdfast migrate` from
    -- its configuration: true where a relay publishes exactly once, for only such a relay compares.
    ADD COLUMN claims_wait_for_relay boolean NOT NULL DEFAULT false,
    -- The start under which all of them were.
    ADD COLUMN relay_checked_start timestamptz;

-- Pods that relay, each for as long as it says so: by their number the shards are shared out.
CREATE TABLE @schema@.relay_pods (
    owner      text PRIMARY KEY,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);
