-- Tables of the protocol. @schema@ is the installation's schema, @role@ its role prefix.
-- Source: seed section 4 (agent_tasks, agent_runs, worker_leases, tool_operations keep their names, checks and
-- foreign keys), protocol sections 3 to 11 for the rest.
-- Hot rows: no index on a column that a renewal or a commit writes, low fillfactor, so that updates stay HOT.

CREATE TABLE @schema@.agent_tasks (
    tenant_id     text        NOT NULL DEFAULT 'default' CHECK (length(tenant_id) BETWEEN 1 AND 64),
    task_id       text        NOT NULL CHECK (length(task_id) BETWEEN 1 AND 200),
    active_run_id uuid,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, task_id)
) WITH (fillfactor = 80);

CREATE TABLE @schema@.agent_runs (
    run_id        uuid        PRIMARY KEY,
    tenant_id     text        NOT NULL,
    task_id       text        NOT NULL,
    status        text        NOT NULL CHECK (status IN ('pending', 'running', 'succeeded', 'failed', 'cancelled')),
    revision      bigint      NOT NULL DEFAULT 0 CHECK (revision >= 0),
    checkpoint    jsonb       NOT NULL DEFAULT '{}'::jsonb,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at    timestamptz NOT NULL DEFAULT clock_timestamp(),

    handler       text        NOT NULL,
    priority      integer     NOT NULL DEFAULT 0,
    first_run_id  uuid        NOT NULL,             -- head of the chain of retries; equals run_id for a submission
    prev_run_id   uuid,                             -- the run that this one retries
    fresh         boolean     NOT NULL DEFAULT false, -- a retry that adopts nothing
    max_attempts  integer     NOT NULL DEFAULT 3 CHECK (max_attempts > 0),
    attempts      integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0), -- acquisitions since the last applied commit
    failures      integer     NOT NULL DEFAULT 0 CHECK (failures >= 0), -- handler failures that asked to be retried
    deadline      timestamptz,

    -- What a parked run waits for; all NULL: it does not wait. wait_mode 'any' | 'all' speaks of wait_operations,
    -- 'none' of a time or signal alone. Any satisfied part wakes the run.
    wait_mode       text CHECK (wait_mode IN ('all', 'any', 'none')),
    wait_operations text[],
    wait_signal     text,
    wait_until      timestamptz,
    woke_reason     text CHECK (woke_reason IN ('operations', 'signal', 'timeout', 'deadline')), -- kept until the next commit

    -- Read-back of an unknown COMMIT: the last protected write of the epoch that made it, and of the epoch before it.
    commit_id            uuid,
    commit_epoch         bigint,
    commit_revision      bigint,
    commit_digest        text,
    prev_commit_id       uuid,
    prev_commit_epoch    bigint,
    prev_commit_revision bigint,
    prev_commit_digest   text,

    FOREIGN KEY (tenant_id, task_id) REFERENCES @schema@.agent_tasks (tenant_id, task_id)
) WITH (fillfactor = 60);
ALTER TABLE @schema@.agent_runs ALTER COLUMN checkpoint SET STORAGE EXTERNAL;
ALTER TABLE @schema@.agent_runs SET (toast_tuple_target = 256);
CREATE INDEX agent_runs_task_created_idx ON @schema@.agent_runs (tenant_id, task_id, created_at DESC);
CREATE INDEX agent_runs_chain_idx ON @schema@.agent_runs (first_run_id) WHERE prev_run_id IS NOT NULL;

-- Large or immutable things of a run, so that a version of the hot row stays small.
CREATE TABLE @schema@.run_data (
    run_id      uuid PRIMARY KEY REFERENCES @schema@.agent_runs (run_id),
    input       jsonb NOT NULL DEFAULT '{}'::jsonb,
    output      jsonb,
    failure     jsonb,
    labels      jsonb,
    traceparent text,
    tracestate  text
) WITH (fillfactor = 80); -- output or failure is written once

CREATE TABLE @schema@.worker_leases (
    run_id     uuid        PRIMARY KEY REFERENCES @schema@.agent_runs (run_id),
    owner      text,
    epoch      bigint      NOT NULL DEFAULT 0 CHECK (epoch >= 0),
    expires_at timestamptz NOT NULL DEFAULT 'epoch',
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ran_out    boolean     NOT NULL DEFAULT false, -- set by sweep: the next acquisition is a takeover
    lapsed_at  timestamptz                         -- when that lease ran out, for workflow_takeover_duration_seconds
) WITH (fillfactor = 50);
-- Held leases. The predicate names no column that a renewal writes.
CREATE INDEX worker_leases_held_idx ON @schema@.worker_leases (run_id) WHERE owner IS NOT NULL;

CREATE TABLE @schema@.tool_operations (
    operation_id   text        PRIMARY KEY CHECK (length(operation_id) BETWEEN 1 AND 200),
    run_id         uuid        NOT NULL REFERENCES @schema@.agent_runs (run_id),
    step_id        text        NOT NULL,
    effect_version integer     NOT NULL CHECK (effect_version > 0),
    tool_name      text        NOT NULL,
    request_digest text        NOT NULL,
    request_body   jsonb       NOT NULL,
    status         text        NOT NULL CHECK (status IN ('prepared', 'dispatching', 'unknown', 'succeeded', 'failed_final', 'cancelled')),
    dispatch_owner text,        -- of the latest claim; kept after it expired, so that a late answer can be told from a forged one
    dispatch_until timestamptz,
    remote_id      text,
    result         jsonb,
    revision       bigint      NOT NULL DEFAULT 0,
    updated_at     timestamptz NOT NULL DEFAULT clock_timestamp(),

    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempts          integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),          -- raised by a claim
    attempts_not_sent integer     NOT NULL DEFAULT 0 CHECK (attempts_not_sent >= 0), -- raised by record_not_sent of that claim
    claimed_revision  bigint,     -- revision that the latest claim made
    first_sent_at     timestamptz, -- start of the first attempt that may have been sent; retention counts from here
    not_before        timestamptz, -- back-off of an unsent or unknown operation
    capability        text NOT NULL DEFAULT 'none' CHECK (capability IN ('idempotency_key', 'deterministic_id', 'query', 'none')),
    declaration       jsonb NOT NULL DEFAULT '{}'::jsonb, -- the tool's declaration in force at registration; it decides
    retention_ms      bigint,     -- of idempotency_key, out of the declaration
    external_key      text NOT NULL, -- what the remote sees: operation_id, or the submission's (key_scope)
    detached          boolean NOT NULL DEFAULT false, -- its run may end before it is settled
    after_operation   text,       -- claimed only once this one is settled (after_settled)
    compensates       text,
    adopted_from      text,       -- a retried run's operation that was answered from an earlier run's ledger
    UNIQUE (run_id, step_id, effect_version),
    CHECK (attempts_not_sent <= attempts)
) WITH (fillfactor = 70);
-- What may be claimed, what runs out, what is due again: each partial, so that settled operations cost nothing. An
-- unknown operation that nothing may send again has no not_before and is never met by the scan for due ones.
CREATE INDEX tool_operations_prepared_idx ON @schema@.tool_operations (tool_name, created_at) WHERE status = 'prepared';
CREATE INDEX tool_operations_dispatching_idx ON @schema@.tool_operations (dispatch_until) WHERE status = 'dispatching';
CREATE INDEX tool_operations_unknown_idx ON @schema@.tool_operations (tool_name, not_before) WHERE status = 'unknown';

-- Has an earlier effect been compensated? Asked when a retried run adopts.
CREATE INDEX tool_operations_compensates_idx ON @schema@.tool_operations (compensates) WHERE compensates IS NOT NULL;

-- One row a request key: what the first delivery was answered is what every later one is answered.
CREATE TABLE @schema@.requests (
    tenant_id     text        NOT NULL,
    -- 'r:<request_id>' of a producer, or the record's own 'kafka:…' (a space producers cannot write). A record that
    -- repeats somebody else's request_id is remembered as 'd:<source>', so that its redelivery emits nothing.
    request_key   text        NOT NULL,
    verb          text        NOT NULL CHECK (verb IN ('submit', 'cancel', 'retry', 'signal')),
    digest        text        NOT NULL,
    source        text,                 -- topic/partition/offset/timestamp, or 'cli:<who>'
    task_id       text        NOT NULL,
    run_id        uuid,
    outcome       text        NOT NULL, -- 'waiting' until control_grace has passed
    detail        jsonb,
    record        jsonb,                -- the whole record while it waits
    waiting_until timestamptz,
    requested_by  text,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, request_key)
) WITH (fillfactor = 90);
CREATE INDEX requests_waiting_idx ON @schema@.requests (tenant_id, task_id) WHERE outcome = 'waiting';
CREATE INDEX requests_grace_idx ON @schema@.requests (waiting_until) WHERE outcome = 'waiting';

-- What may be claimed now, and nothing else. Written only under the run's lock.
CREATE TABLE @schema@.ready (
    run_id   uuid PRIMARY KEY,
    handler  text NOT NULL,
    priority integer NOT NULL,
    since    timestamptz NOT NULL
);
-- A claim reads each handler's front; handlers that no pod serves must not stand in the way of those behind them.
CREATE INDEX ready_order_idx ON @schema@.ready (handler, priority DESC, since, run_id);

-- A parked run that has a time (wait, back-off, not_before or deadline). Written only under the run's lock.
CREATE TABLE @schema@.timers (
    run_id uuid PRIMARY KEY,
    at     timestamptz NOT NULL
);
CREATE INDEX timers_at_idx ON @schema@.timers (at);

CREATE TABLE @schema@.signals (
    tenant_id   text NOT NULL,
    task_id     text NOT NULL,
    signal_id   text NOT NULL,
    run_id      uuid,
    name        text NOT NULL,
    payload     jsonb,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    consumed_by uuid,   -- run
    consumed_at timestamptz,
    PRIMARY KEY (tenant_id, task_id, signal_id)
);

-- Answers to acquire and claims by token, so that a lost answer can be asked again.
CREATE TABLE @schema@.claims (
    token      uuid PRIMARY KEY,
    owner      text NOT NULL,
    run_ids    uuid[],
    epochs     bigint[],
    operations text[],
    revisions  bigint[],
    made_at    timestamptz NOT NULL
);
CREATE INDEX claims_made_at_idx ON @schema@.claims (made_at); -- one row a call, not one an item: a b-tree costs nothing here

-- Append-only from here: no foreign keys, keys that allow partitions by time.
CREATE TABLE @schema@.operation_evidence (
    evidence_id    bigint GENERATED ALWAYS AS IDENTITY,
    at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    operation_id   text NOT NULL,
    attempt        integer,
    dispatch_owner text,
    dispatch_revision bigint,
    epoch          bigint,
    kind           text NOT NULL, -- claimed, response, timeout, not_sent, sent_late, expired, late, contradiction, query, manual, lost_history …
    detail         jsonb NOT NULL DEFAULT '{}'::jsonb,
    PRIMARY KEY (evidence_id, at)
);
CREATE INDEX operation_evidence_operation_idx ON @schema@.operation_evidence (operation_id, evidence_id);

CREATE TABLE @schema@.run_history (
    history_id  bigint GENERATED ALWAYS AS IDENTITY,
    at          timestamptz NOT NULL,
    tenant_id   text NOT NULL,
    task_id     text NOT NULL,
    run_id      uuid NOT NULL,
    kind        text NOT NULL, -- created, started, taken_over, succeeded, failed, cancelled
    from_status text,
    to_status   text NOT NULL,
    epoch       bigint NOT NULL,
    revision    bigint NOT NULL,
    owner       text,
    commit_id   uuid,
    detail      jsonb,
    PRIMARY KEY (history_id, at)
);
CREATE INDEX run_history_run_idx ON @schema@.run_history (run_id, history_id);

-- The first refusal per (run, epoch, reason), with a count.
CREATE TABLE @schema@.refusals (
    run_id        uuid   NOT NULL,
    epoch         bigint NOT NULL,
    reason        text   NOT NULL,
    verb          text   NOT NULL,
    owner         text,
    current_epoch bigint,
    refused       bigint NOT NULL DEFAULT 1,
    first_at      timestamptz NOT NULL,
    last_at       timestamptz NOT NULL,
    PRIMARY KEY (run_id, epoch, reason, verb)
);

-- Rows to be published. seq is drawn under the run's lock; shard by @schema@.shard_of(tenant, task).
CREATE TABLE @schema@.outbox_events (
    seq         bigint  NOT NULL,
    event_id    uuid    NOT NULL,
    shard       integer NOT NULL,
    tenant_id   text    NOT NULL,
    task_id     text    NOT NULL,
    run_id      uuid,
    type        text    NOT NULL,
    epoch       bigint  NOT NULL DEFAULT 0,
    revision    bigint  NOT NULL DEFAULT 0,
    timeline    bigint  NOT NULL,
    at          timestamptz NOT NULL,
    body        jsonb   NOT NULL, -- the type's own member: {"output":…} | {"failure":…} | {"operation":…} | …
    traceparent text,
    tracestate  text,
    PRIMARY KEY (shard, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
CREATE SEQUENCE @schema@.outbox_seq AS bigint CACHE 1;

-- The last batch of a shard whose rows were durably deleted; its owner is a row in service_leases ('shard:<n>').
CREATE TABLE @schema@.relay_positions (
    shard        integer PRIMARY KEY,
    last_batch   bigint  NOT NULL DEFAULT 0,
    updated_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE @schema@.service_leases (
    name       text PRIMARY KEY, -- 'sweep', 'shard:<n>'
    owner      text,
    epoch      bigint NOT NULL DEFAULT 0,
    expires_at timestamptz NOT NULL DEFAULT 'epoch',
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

CREATE TABLE @schema@.schedules (
    schedule_id text PRIMARY KEY,
    declaration jsonb NOT NULL,
    next_at     timestamptz,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Handlers and tools that pods declared.
CREATE TABLE @schema@.registry (
    kind        text NOT NULL CHECK (kind IN ('handler', 'tool')),
    name        text NOT NULL,
    digest      text NOT NULL,
    declaration jsonb NOT NULL DEFAULT '{}'::jsonb,
    pod         text NOT NULL,
    first_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (kind, name)
);

-- One row: ceilings, gate, the database's known identity, versions.
CREATE TABLE @schema@.control (
    the_one           boolean PRIMARY KEY DEFAULT true CHECK (the_one),
    max_lease_ttl_ms  bigint  NOT NULL DEFAULT 600000,
    max_claim_ttl_ms  bigint  NOT NULL DEFAULT 600000,
    max_service_ttl_ms bigint NOT NULL DEFAULT 2000,
    max_batch         integer NOT NULL DEFAULT 1000,
    max_body_bytes    integer NOT NULL DEFAULT 900000,   -- of a checkpoint, a request, a result
    max_output_bytes  integer NOT NULL DEFAULT 16777216, -- of input and output; what Kafka cannot take is published without its body
    max_event_bytes   integer NOT NULL DEFAULT 900000,   -- of a step's own event
    shards            integer NOT NULL DEFAULT 8 CHECK (shards BETWEEN 1 AND 256),
    control_grace_ms  bigint  NOT NULL DEFAULT 60000,
    token_keep_ms     bigint  NOT NULL DEFAULT 900000,
    failover_mode     text    NOT NULL DEFAULT 'async' CHECK (failover_mode IN ('strict', 'async')),
    gate_closed       boolean NOT NULL DEFAULT false, -- closed by hand or by a relay; the predicate also looks at the identity below
    gate_reason       text,
    gate_changed_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    gate_changed_by   text,
    system_identifier bigint  NOT NULL,
    timeline          bigint  NOT NULL,
    schema_version    integer NOT NULL,
    oldest_interface  integer NOT NULL DEFAULT 1
);

-- Who closed and opened the gate, why, and what opening it did. Append-only.
CREATE TABLE @schema@.gate_log (
    log_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    act     text  NOT NULL CHECK (act IN ('close', 'open')),
    by_whom text  NOT NULL,
    login   text  NOT NULL,
    reason  text  NOT NULL,
    detail  jsonb NOT NULL DEFAULT '{}'::jsonb
);

-- What stats() last counted by a scan over all runs, and how long that took: see there.
CREATE TABLE @schema@.gauges (
    the_one  boolean PRIMARY KEY DEFAULT true CHECK (the_one),
    at       timestamptz NOT NULL,
    took     interval NOT NULL,
    parked   bigint NOT NULL,
    stranded bigint NOT NULL
) WITH (fillfactor = 50);

-- The state machines, once. A trigger refuses what is not here; diagrams in docs/ are printed from here.
CREATE TABLE @schema@.run_transition (
    from_status text NOT NULL,
    verb        text NOT NULL,
    to_status   text NOT NULL,
    authority   text NOT NULL, -- acquire, holder, control
    PRIMARY KEY (from_status, verb, to_status)
);
CREATE TABLE @schema@.operation_transition (
    from_status text NOT NULL,
    verb        text NOT NULL,
    to_status   text NOT NULL,
    authority   text NOT NULL, -- dispatcher, claim, holder, control, operator, remote
    PRIMARY KEY (from_status, verb, to_status)
);
