-- Side effects: signals that wait, queries of operations in doubt, limits of tools across pods, escalation, undoing.
-- Protocol sections 4, 5, 7 and 9.

-- A signal whose task is not there yet; what it carries is no part of any story.
ALTER TABLE @schema@.requests ADD COLUMN payload jsonb;

-- Made anew by this migration, with a body that depends on no column.
DROP FUNCTION IF EXISTS @schema@.operation_context(@schema@.tool_operations);
ALTER TABLE @schema@.tool_operations
    -- A query of the remote is exclusive like a dispatch, but no attempt and no step: neither counts.
    ADD COLUMN query_owner     text,
    ADD COLUMN query_since     timestamptz,             -- when that claim was made: only what was asked after it is its word
    ADD COLUMN query_until     timestamptz,
    ADD COLUMN queries         integer NOT NULL DEFAULT 0, -- raised by claim_queries: the number of the query
    ADD COLUMN queried_attempt integer NOT NULL DEFAULT 0, -- attempts when the last query was answered
    ADD COLUMN escalate_at     timestamptz,             -- declared: from then on a doubt is a person's business
    ADD COLUMN escalated_at    timestamptz,
    -- What the tool's policy asks for since the run was cancelled while this was in flight; NULL once that is registered.
    ADD COLUMN undo            text CHECK (undo IN ('remote_cancel', 'compensate')),
    ADD CHECK ((query_owner IS NULL) = (query_until IS NULL) AND (query_owner IS NULL) = (query_since IS NULL));

-- By tool, too: how many requests to it are in flight is counted when it has a limit.
DROP INDEX @schema@.tool_operations_dispatching_idx;
CREATE INDEX tool_operations_dispatching_idx ON @schema@.tool_operations (dispatch_until, tool_name)
    WHERE status = 'dispatching';
CREATE INDEX tool_operations_queried_idx ON @schema@.tool_operations (tool_name) WHERE query_owner IS NOT NULL;
CREATE INDEX tool_operations_escalate_idx ON @schema@.tool_operations (escalate_at)
    WHERE status = 'unknown' AND escalate_at IS NOT NULL;
CREATE INDEX tool_operations_undo_idx ON @schema@.tool_operations (tool_name, operation_id)
    WHERE (undo = 'remote_cancel' AND status IN ('dispatching', 'unknown')) OR (undo = 'compensate' AND status = 'succeeded');

-- Limits of a tool over all pods, out of its latest declaration. No row: none. A claim takes the row with SKIP LOCKED and
-- leaves the tool alone when it does not get it.
CREATE TABLE @schema@.tool_limits (
    tool_name     text PRIMARY KEY,
    max_in_flight integer          CHECK (max_in_flight > 0),
    rate_per_s    double precision CHECK (rate_per_s > 0),
    burst         double precision NOT NULL DEFAULT 1 CHECK (burst >= 1),
    tokens        double precision NOT NULL DEFAULT 1, -- of the bucket at tokens_at
    tokens_at     timestamptz      NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- Their answers have one column more: made anew by this migration.
DROP FUNCTION IF EXISTS @iface@.cancel(text[], text[], text[], boolean[], text[], text[], text[], uuid[], text[], jsonb[]);
DROP FUNCTION IF EXISTS @iface@.sweep(text, bigint, integer);
