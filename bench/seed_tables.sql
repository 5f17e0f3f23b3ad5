-- The seed's own lease and run tables, with its keys and checks and nothing else: the other side of protected-write.
CREATE SCHEMA seed;
CREATE TABLE seed.agent_tasks (
    task_id text PRIMARY KEY, active_run_id uuid,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(), updated_at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE seed.agent_runs (
    run_id uuid PRIMARY KEY, task_id text NOT NULL REFERENCES seed.agent_tasks (task_id),
    status text NOT NULL CHECK (status IN ('pending', 'running', 'succeeded', 'failed', 'cancelled')),
    revision bigint NOT NULL DEFAULT 0 CHECK (revision >= 0), checkpoint jsonb NOT NULL DEFAULT '{}'::jsonb,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(), updated_at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX agent_runs_task_created_idx ON seed.agent_runs (task_id, created_at DESC);
CREATE TABLE seed.worker_leases (
    run_id uuid PRIMARY KEY REFERENCES seed.agent_runs (run_id), owner text,
    epoch bigint NOT NULL DEFAULT 0 CHECK (epoch >= 0), expires_at timestamptz NOT NULL DEFAULT 'epoch',
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp());
INSERT INTO seed.agent_tasks (task_id) SELECT 't' || g FROM generate_series(1, 9600) g;
INSERT INTO seed.agent_runs (run_id, task_id, status)
    SELECT lpad(to_hex(g), 32, '0')::uuid, 't' || g, 'running' FROM generate_series(1, 9600) g;
INSERT INTO seed.worker_leases (run_id, owner, epoch, expires_at)
    SELECT lpad(to_hex(g), 32, '0')::uuid, 'w1', 1, clock_timestamp() + interval '1 day' FROM generate_series(1, 9600) g;
