/* METRIC(kind, id, name, labels, help). Labels: comma-separated names, "" for none, at most two.
 * Counters end in _total, times are seconds. The seed's seven names first, as they are (protocol section 13). */
/* clang-format off */
METRIC(COUNTER, LEASE_ACQUIRE, "lease_acquire_total", "outcome", "Acquisitions by outcome.")
METRIC(COUNTER, LEASE_RENEW, "lease_renew_total", "outcome", "Renewals by outcome.")
METRIC(COUNTER, PROTECTED_WRITE_REJECTED, "protected_write_rejected_total", "reason", "Protected writes refused, by reason.")
METRIC(HISTOGRAM, LEASE_ROW_LOCK_WAIT, "lease_row_lock_wait_seconds", "", "Time of a protected write in the database, mostly waits for row locks.")
METRIC(COUNTER, TOOL_OPERATION_UNKNOWN, "tool_operation_unknown_total", "tool", "Operations whose outcome became unknown.")
METRIC(GAUGE, TOOL_OPERATION_UNKNOWN_OLDEST_AGE, "tool_operation_unknown_oldest_age_seconds", "tool", "Age of the oldest operation with unknown outcome.")
METRIC(HISTOGRAM, WORKFLOW_TAKEOVER_DURATION, "workflow_takeover_duration_seconds", "", "From the end of a lost lease to the acquisition that took the run over.")

/* Process */
METRIC(GAUGE, BUILD_INFO, "holdfast_build_info", "version", "Always 1; the label is the version.")
METRIC(GAUGE, START_TIME, "holdfast_start_time_seconds", "", "When this pod started, unix time.")
METRIC(COUNTER, LOG_DROPPED, "holdfast_log_dropped_total", "", "Log lines that could not be written.")

/* Records */
METRIC(COUNTER, RECORDS, "holdfast_records_total", "topic", "Kafka records read.")
METRIC(COUNTER, SUBMIT, "holdfast_submit_total", "outcome", "Submissions by outcome.")
METRIC(COUNTER, CONTROL, "holdfast_control_total", "verb,outcome", "Cancel, retry and signal requests by outcome.")
METRIC(COUNTER, DEAD_LETTERS, "holdfast_dead_letters_total", "reason", "Records dead-lettered, by reason.")
METRIC(HISTOGRAM, SUBMIT_BATCH_SECONDS, "holdfast_submit_batch_seconds", "", "Duration of a submission statement.")
METRIC(GAUGE, PAUSED_PARTITIONS, "holdfast_paused_partitions", "", "Partitions paused by backlog or by a database that is away.")
METRIC(GAUGE, KAFKA_LAG, "holdfast_kafka_lag", "topic,partition", "Records behind the high watermark.")

/* Pool */
METRIC(GAUGE, RUNS_HELD, "holdfast_runs_held", "", "Runs this pod holds now.")
METRIC(COUNTER, STEPS, "holdfast_steps_total", "handler,outcome", "Handler steps by how they ended.")
METRIC(HISTOGRAM, STEP_SECONDS, "holdfast_step_seconds", "handler", "Duration of a step from start to decision.")
METRIC(COUNTER, COMMIT, "holdfast_commit_total", "outcome", "Items of group commits by outcome.")
METRIC(HISTOGRAM, COMMIT_BATCH_SECONDS, "holdfast_commit_batch_seconds", "", "Duration of a group commit statement.")
METRIC(HISTOGRAM, COMMIT_BATCH_ITEMS, "holdfast_commit_batch_items", "", "Items in a group commit.")
METRIC(COUNTER, RELEASE, "holdfast_release_total", "outcome", "Releases by outcome.")
METRIC(COUNTER, SWEEP, "holdfast_sweep_total", "part", "What sweeps moved: leases_expired, timers_due, deadlines, exhausted, claims_expired, requests_missing, tokens_pruned.")
METRIC(COUNTER, TAKEOVERS, "holdfast_takeovers_total", "", "Runs taken over by this pod.")
METRIC(GAUGE, WORKERS_BUSY, "holdfast_workers_busy", "", "Worker threads at work.")
METRIC(GAUGE, QUEUE_LENGTH, "holdfast_queue_length", "queue", "Things waiting in a queue of this pod.")
METRIC(COUNTER, CHILD_RESTARTS, "holdfast_child_restarts_total", "handler", "Child processes of exec handlers started again.")
METRIC(COUNTER, HEARTBEATS_LATE, "holdfast_heartbeats_late_total", "", "Renewals not confirmed in time.")

/* Backlog, from the database */
METRIC(GAUGE, RUNS_DUE, "holdfast_runs_due", "", "Runs that may be claimed now.")
METRIC(GAUGE, RUNS_HELD_ALL, "holdfast_runs_held_all", "", "Runs held by all pods.")
METRIC(GAUGE, RUNS_PARKED, "holdfast_runs_parked", "", "Runs that wait.")
METRIC(GAUGE, RUNS_STRANDED, "holdfast_runs_stranded", "", "Runs in no condition at all: always 0, or invariant I9 is broken.")
METRIC(GAUGE, OPERATIONS_UNKNOWN, "holdfast_operations_unknown", "tool", "Operations with unknown outcome now.")
METRIC(GAUGE, OUTBOX_ROWS, "holdfast_outbox_rows", "", "Events not yet published.")
METRIC(GAUGE, OUTBOX_OLDEST_AGE, "holdfast_outbox_oldest_age_seconds", "", "Age of the oldest event not yet published.")
METRIC(GAUGE, GATE_OPEN, "holdfast_gate_open", "", "1 while the gate is open.")

/* Pre-filter */
METRIC(COUNTER, PREFILTER, "holdfast_prefilter_total", "outcome", "Answers of the Redis pre-filter: won, lost, bypassed, held.")
METRIC(GAUGE, PREFILTER_OPEN, "holdfast_prefilter_breaker_open", "", "1 while the circuit breaker keeps Redis out.")
METRIC(HISTOGRAM, PREFILTER_SECONDS, "holdfast_prefilter_seconds", "", "Round trip to Redis.")

/* Tools */
METRIC(COUNTER, OPERATIONS_CLAIMED, "holdfast_operations_claimed_total", "tool", "Operations claimed for dispatch.")
METRIC(COUNTER, OPERATIONS_SENT, "holdfast_operations_sent_total", "tool", "Attempts that may have been sent.")
METRIC(COUNTER, OPERATIONS_SETTLED, "holdfast_operations_settled_total", "tool,outcome", "Recorded results by verdict.")
METRIC(COUNTER, OPERATIONS_NOT_SENT, "holdfast_operations_not_sent_total", "tool", "Attempts that were not sent for certain.")
METRIC(COUNTER, RESULTS_LATE, "holdfast_results_late_total", "tool", "Answers that came after their claim.")
METRIC(COUNTER, CONTRADICTIONS, "holdfast_contradictions_total", "tool", "Facts that contradict a settled operation.")
METRIC(COUNTER, KEY_CONFLICTS, "holdfast_key_conflicts_total", "tool", "Answers that say that a key was used with other parameters.")
METRIC(COUNTER, QUERIES, "holdfast_queries_total", "tool,outcome", "Questions to remotes about operations in doubt: succeeded, failed_final, absent, foreign, pending, unanswered.")
METRIC(COUNTER, CONVERGED, "holdfast_converged_total", "tool,outcome", "Facts about operations from queries and callbacks, by outcome: settled, evidence_only, contradiction, digest_mismatch, missing.")
METRIC(COUNTER, ESCALATED, "holdfast_operations_escalated_total", "", "Operations in doubt for longer than their tool declares: a person's business.")
METRIC(COUNTER, COMPLETIONS, "holdfast_completions_total", "source,outcome", "Completions delivered from outside over kafka and http, by outcome.")
METRIC(HISTOGRAM, TOOL_SECONDS, "holdfast_tool_seconds", "tool", "Duration of a request to a tool.")
METRIC(GAUGE, REQUESTS_IN_FLIGHT, "holdfast_requests_in_flight", "tool", "Requests to tools in flight.")

/* Relay */
METRIC(COUNTER, EVENTS_PUBLISHED, "holdfast_events_published_total", "type", "Result events published.")
METRIC(COUNTER, RELAY_BATCHES, "holdfast_relay_batches_total", "outcome", "Relay transactions by outcome: committed, aborted, unknown, fenced.")
METRIC(HISTOGRAM, RELAY_BATCH_SECONDS, "holdfast_relay_batch_seconds", "", "Read, publish and delete of one batch.")
METRIC(COUNTER, RELAY_RECOVERIES, "holdfast_relay_recoveries_total", "kind", "Starts of a shard: ordinary, recovery.")
METRIC(GAUGE, EVENTS_HELD_BACK, "holdfast_events_held_back", "shard", "Events older than the retention of the result topic: not published, an operator looks at them.")
METRIC(GAUGE, SHARDS_HELD, "holdfast_shards_held", "", "Relay shards this pod holds.")
METRIC(COUNTER, HINTS, "holdfast_hints_total", "topic,outcome", "Wake-ups and intents sent, by fate.")

/* Connections */
METRIC(COUNTER, DB_CALLS, "holdfast_db_calls_total", "function,outcome", "Statements by function and outcome.")
METRIC(HISTOGRAM, DB_CALL_SECONDS, "holdfast_db_call_seconds", "function", "Duration of a statement.")
METRIC(COUNTER, DB_CONNECTS, "holdfast_db_connects_total", "outcome", "Connections opened to PostgreSQL, by outcome.")
METRIC(GAUGE, DB_CONNECTED, "holdfast_db_connected", "", "Connections to PostgreSQL now.")
METRIC(GAUGE, DB_WAITS_FOR_STANDBY, "holdfast_db_waits_for_standby", "", "Statements waiting for a synchronous standby now.")
METRIC(GAUGE, DB_CLOCK_OFFSET, "holdfast_db_clock_offset_seconds", "", "The database's clock minus this pod's.")
METRIC(COUNTER, KAFKA_ERRORS, "holdfast_kafka_errors_total", "code", "Errors reported by the Kafka client.")
