"""The guards of the protocol, each with the change that takes it away and the tests that must notice.

One row a mutant. `edits` are (file, text, replacement): the text occurs exactly once in the file, or the mutant is broken.
`tests` are the tests named for the guard; one that stays green does not kill it, one that goes red is enough. Kinds:

    sql          a test below tests/sql, by pytest's name
    unit         a program of the unit tests
    integration  a test below tests/integration, by pytest's name
    scene        a scene of tests/scenario
"""
from dataclasses import dataclass

FUNCTIONS = "schemas/sql/functions/"


@dataclass(frozen=True)
class Mutant:
    name: str
    guard: str   # what the protocol calls it
    harm: str    # what could happen without it
    edits: tuple
    tests: tuple


def sql(*names):
    return tuple(("sql", name) for name in names)


def unit(*names):
    return tuple(("unit", name) for name in names)


def integration(*names):
    return tuple(("integration", name) for name in names)


def scene(*names):
    return tuple(("scene", name) for name in names)


COMMIT = FUNCTIONS + "commit.sql"
LOCK_LEASES = "    PERFORM 1 FROM @schema@.worker_leases l WHERE l.run_id = ANY (p_run_ids) ORDER BY l.run_id FOR NO KEY UPDATE;\n"
LOCK_RUNS = "    PERFORM 1 FROM @schema@.agent_runs r WHERE r.run_id = ANY (p_run_ids) ORDER BY r.run_id FOR NO KEY UPDATE;\n"

MUTANTS = (
    Mutant("expiry", "expiry", "a session whose lease has run out writes on, while nobody has taken over yet",
           ((COMMIT, " AND l.expires_at > t, false) AS holds", ", false) AS holds"),),
           sql("runs/test_commit.py::test_expired_is_lost_even_without_a_successor")),
    Mutant("expiry_renew", "expiry", "a heartbeat revives a lease that has run out (hole 1)",
           ((FUNCTIONS + "renew.sql", " OR l.expires_at <= t THEN 'lost'", " THEN 'lost'"),),
           sql("runs/test_life.py::test_renew", "test_specs.py::test_spec[hole_01_renew_revives]")),
    Mutant("owner", "owner", "a session of another pod that knows the epoch writes",
           ((COMMIT, "coalesce(l.owner = p_owners[g.n] AND l.epoch", "coalesce(l.epoch"),),
           sql("runs/test_commit.py::test_the_owner_is_asked_as_well_as_the_epoch")),
    Mutant("epoch", "epoch", "a session of an earlier term of the same owner writes",
           ((COMMIT, " AND l.epoch = p_epochs[g.n] AND l.expires_at > t, false) AS holds", " AND l.expires_at > t, false) AS holds"),),
           sql("runs/test_life.py::test_the_epoch_decides_even_between_sessions_of_one_name")),
    Mutant("revision", "revision", "of two writes of one state both are kept, and one is lost",
           ((COMMIT, "              WHEN p_revisions[b.n] <> b.stored_revision THEN 'revision_conflict'\n", ""),),
           sql("runs/test_commit.py::test_revision_conflict_answers_what_is_stored",
               "runs/test_commit.py::test_exactly_one_of_many_writers_with_one_revision_wins")),
    Mutant("lock_before_validate", "lock before validate", "two writes validate one state side by side",
           ((COMMIT, LOCK_LEASES + LOCK_RUNS, ""),),
           sql("runs/test_commit.py::test_exactly_one_of_many_writers_with_one_revision_wins")),
    Mutant("clock_after_lock", "lock before validate", "a write that waited for its lock is judged by the time before the wait",
           ((COMMIT, "\n    t := clock_timestamp();\n\n    -- Decide: first", "\n    -- Decide: first"),
            (COMMIT, "\n    -- Lock.\n", "\n    t := clock_timestamp();\n    -- Lock.\n")),
           sql("races/test_race_clock.py")),
    Mutant("terminal_run", "terminal run", "a run that was cancelled is written on",
           ((COMMIT, "              WHEN b.status <> 'running' THEN 'not_running'\n", ""),),
           sql("runs/test_commit.py::test_not_running_after_cancel", "test_specs.py::test_spec[cancel_meets_the_finish]")),
    Mutant("terminal_run_acquire", "terminal run", "a run that has ended is taken up again (hole 6)",
           ((FUNCTIONS + "take_runs.sql", "                      WHEN r.status NOT IN ('pending', 'running') THEN 'terminal'\n", ""),),
           sql("runs/test_life.py::test_acquire_outcomes", "test_specs.py::test_spec[hole_06_acquire_of_an_ended_run]")),
    Mutant("epoch_kept_on_release", "epoch kept on release", "a later term gets an epoch that was used before",
           ((FUNCTIONS + "release.sql", "SET owner = NULL, expires_at = t", "SET owner = NULL, epoch = 0, expires_at = t"),),
           sql("runs/test_life.py::test_release_keeps_the_epoch_and_never_disturbs_a_successor")),
    Mutant("run_status_at_claim", "run status at claim", "an operation of a cancelled run is sent",
           ((FUNCTIONS + "claim_operations.sql",
             "                   WHEN r.status NOT IN ('pending', 'running') AND NOT o.detached AND o.compensates IS NULL\n"
             "                       THEN 'terminal'\n", ""),),
           sql("ledger/test_races.py::test_a_run_cancelled_before_the_operations_lock_is_seen")),
    Mutant("never_back_to_prepared", "never back to prepared", "an operation that may have been sent looks as if it never was",
           ((FUNCTIONS + "expire_claims.sql", "SET status = 'unknown'", "SET status = 'prepared'"),),
           sql("ledger/test_races.py::test_a_result_lost_against_expiry_is_late")),
    Mutant("never_back_to_prepared_record", "never back to prepared", "the same, by a dispatcher that has no answer",
           ((FUNCTIONS + "record_open.sql", "THEN 'cancelled' ELSE 'unknown' END,", "THEN 'cancelled' ELSE 'prepared' END,"),),
           sql("ledger/test_files.py::test_file[record_open.sql]")),
    Mutant("dispatch_revision", "dispatch revision", "an answer of an earlier claim of the same session settles a later one",
           ((FUNCTIONS + "record_result.sql", " AND o.claimed_revision = i.revision", ""),),
           sql("ledger/test_files.py::test_file[record_result.sql]")),
    Mutant("stable_operation_id", "stable operation ID", "who takes over asks for the same effect under another identity",
           (("pool/answer.c", "SPAN_ARG(step), (int)version));",
             "SPAN_ARG(step), (int)version + (int)r->session->epoch - 1));"),),
           unit("pool_answer_test")),
    Mutant("stable_operation_id_sql", "stable operation ID", "an intent is registered under an identity of the pod's own making",
           ((FUNCTIONS + "commit_intents.sql",
             "              WHEN k.operation_id <> r.tenant_id || '/' || r.run_id || '/' || k.step || '/' || k.version\n"
             "                  THEN 'operation_id must be tenant/run/step/effect_version'\n", ""),),
           sql("runs/test_commit.py::test_an_invalid_intent")),
    Mutant("offset_after_durable", "offset after durable", "a record whose pod dies is never applied",
           (("pool/submit.c", "        items[i] = submit_item(records[i]);\n    int64_t start_us",
             "        items[i] = submit_item(records[i]), broker_done(records[i]->raw);\n    int64_t start_us"),),
           scene("offset_after_durable")),
    Mutant("relay_identity", "relay identity", "nobody can tell what the last batch published",
           (("outbox/relay_batch.c", "    result = broker_txn_produce(s->txn, &identity, 0, &error);",
             "    result = identity.key.n > 0 ? BROKER_OK : BROKER_REFUSED;"),),
           integration("test_relay.py::test_identities_name_what_was_published")),
    Mutant("relay_identity_read", "relay identity", "what was published before a crash is published again",
           (("outbox/relay_start.c", "    if (identity->batch <= m->position.last_batch) {", "    if (identity->batch > 0) {"),),
           integration("test_relay.py::test_killed_at_each_step[relay.after_kafka_commit]")),
    Mutant("cancel_order", "cancel order", "an intent registered meanwhile is sent after its run was cancelled (hole 3)",
           ((FUNCTIONS + "cancel_runs.sql", "    PERFORM @schema@.cancel_open(p_t, h.run_ids);\n", ""),
            (FUNCTIONS + "cancel.sql",
             "    PERFORM 1 FROM @schema@.agent_runs r WHERE r.run_id = ANY (v_runs) ORDER BY r.run_id FOR NO KEY UPDATE;\n"
             "    t := clock_timestamp();\n",
             "    PERFORM @schema@.cancel_open(clock_timestamp(), v_runs);\n"
             "    PERFORM 1 FROM @schema@.agent_runs r WHERE r.run_id = ANY (v_runs) ORDER BY r.run_id FOR NO KEY UPDATE;\n"
             "    t := clock_timestamp();\n")),
           sql("test_specs.py::test_spec[hole_03_cancel_misses_an_intent]")),
    Mutant("unknown_commit", "unknown commit", "a lost answer is taken for a lost lease: a write that was applied is done again",
           (("pool/commit.c", "    case CLASS_RETRY:\n    case CLASS_UNKNOWN:\n        return AGAIN;\n",
             "    case CLASS_UNKNOWN:\n        return SPLIT;\n    case CLASS_RETRY:\n        return AGAIN;\n"),),
           scene("unknown_commit")),
    Mutant("unknown_commit_id", "unknown commit", "the same write is offered again as another one, and is refused as stale",
           (("pool/commit_batch.c", ".commit_id = r->commit_id,", ".commit_id = uuid_v4(),"),),
           scene("unknown_commit")),
    Mutant("unknown_commit_db", "unknown commit", "a connection that broke after the COMMIT was sent counts as nothing done",
           (("schemas/db_exchange.c", "        return db_fail(db, is_read ? OUTCOME_DB_DOWN : OUTCOME_DB_UNKNOWN, \"%s\",\n",
             "        return db_fail(db, is_read ? OUTCOME_DB_DOWN : OUTCOME_DB_RETRY, \"%s\",\n"),),
           unit("schemas_db_connect_test")),
    Mutant("redis_miss", "Redis miss", "a key that Redis does not have makes an owner",
           (("pool/acquire.c", "    if (row->outcome == OUTCOME_ACQUIRED) {",
             "    if (row->outcome == OUTCOME_ACQUIRED || (prefiltered && row->outcome == OUTCOME_BUSY)) {"),),
           scene("redis_knows_nothing")),
    Mutant("redis_failure", "Redis miss", "without Redis nothing is taken up by its name",
           (("fence/prefilter.c", "    bool go = p->on_failure == REDIS_BYPASS;", "    bool go = p->on_failure != REDIS_BYPASS;"),),
           unit("fence_prefilter_test")),
    Mutant("canonical_digest", "canonical digest", "a stored request that was changed is sent",
           (("outbox/declared.c", "    if (!span_eq_text(d->claim.request_digest, digest.text)) {",
             "    if (digest.text[0] == '\\0') {"),),
           integration("test_dispatcher.py::test_a_changed_request_is_not_sent")),
    Mutant("canonical_digest_order", "canonical digest", "the same request has two digests, by the order of its members",
           (("schemas/canon.c", "    if (!sorted)\n        qsort", "    if (sorted)\n        qsort"),),
           unit("schemas_canon_test")),
    Mutant("transport_resend", "transport re-send", "the library sends a request again that may have acted",
           (("net/http_exchange.c", "    if (x->passages > 0) {\n        x->fault = HTTP_FAULT_RESEND;\n    } else if",
             "    if"),),
           unit("net_client_test")),
    Mutant("search_path", "search_path order", "a temporary table of the caller's is read in place of the product's",
           ((COMMIT, "SET search_path = pg_catalog, @schema@, pg_temp", "SET search_path = pg_catalog, @schema@"),),
           sql("roles/test_roles.py::test_owner")),
)
