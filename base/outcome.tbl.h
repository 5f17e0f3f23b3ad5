/* OUTCOME(code, word, class, sentence). Included with OUTCOME defined. */
/* clang-format off */

/* Everywhere */
OUTCOME(OK, "ok", DONE, "done")
OUTCOME(MISSING, "missing", REFUSED, "there is no such thing")
OUTCOME(TERMINAL, "terminal", REFUSED, "the run has ended")
OUTCOME(BUSY, "busy", RETRY, "somebody else holds it or decides about it at this moment; ask again later")
OUTCOME(INVALID, "invalid", REFUSED, "the request is malformed; the detail says where")
OUTCOME(GATE_CLOSED, "gate_closed", RETRY, "the gate is closed until an operator has checked the database's history")
OUTCOME(WAITING, "waiting", DONE, "kept until the task it speaks of is there, or control_grace has passed")
OUTCOME(RUN_MISMATCH, "run_mismatch", REFUSED, "the named run is not the task's run")
OUTCOME(DUPLICATE, "duplicate", DONE, "this request key was answered before; the first answer stands")
OUTCOME(REQUEST_CONFLICT, "request_conflict", REFUSED, "this request key was used before with another content")
OUTCOME(TOO_OLD, "too_old", REFUSED, "the record is older than request keys are kept")

/* submit, retry */
OUTCOME(CREATED, "created", DONE, "a new run was made")
OUTCOME(TASK_ACTIVE, "task_active", REFUSED, "the task has a run that has not ended")
OUTCOME(UNSETTLED_OPERATIONS, "unsettled_operations", REFUSED,
        "operations of the previous run may have been sent and are not settled")

/* acquire, claim */
OUTCOME(ACQUIRED, "acquired", DONE, "the lease is held from now on")
OUTCOME(NOT_READY, "not_ready", REFUSED, "the run is held or waits for something")
OUTCOME(TOKEN_USED, "token_used", REFUSED, "what this token had acquired has run out or was given back")
OUTCOME(ATTEMPTS_EXHAUSTED, "attempts_exhausted", REFUSED, "the run failed: too many acquisitions without a commit")
OUTCOME(DEADLINE_EXCEEDED, "deadline_exceeded", REFUSED, "the run failed: its deadline has passed")

/* renew, release */
OUTCOME(RENEWED, "renewed", DONE, "the lease is extended")
OUTCOME(LOST, "lost", REFUSED, "the lease has run out or belongs to a later epoch")
OUTCOME(DEADLINE, "deadline", REFUSED, "the run's deadline has passed")
OUTCOME(RELEASED, "released", DONE, "the lease is given back")
OUTCOME(NOT_HOLDER, "not_holder", REFUSED, "the caller does not hold this lease")

/* commit */
OUTCOME(LEASE_LOST, "lease_lost", REFUSED, "the lease was not valid when the write was checked")
OUTCOME(SUPERSEDED, "superseded", REFUSED, "later epochs have written; whether this write was applied is in history")
OUTCOME(REVISION_CONFLICT, "revision_conflict", REFUSED, "the state is not the one this decision was made on")
OUTCOME(NOT_RUNNING, "not_running", REFUSED, "the run does not accept writes of a holder")
OUTCOME(INTENT_CONFLICT, "intent_conflict", REFUSED, "this operation exists with another run, tool or request")
OUTCOME(EFFECT_IN_DOUBT, "effect_in_doubt", REFUSED, "the effect it replaces may have been sent")
OUTCOME(OPEN_OPERATIONS, "open_operations", REFUSED, "the run cannot succeed while its operations are open")
OUTCOME(EVENT_TOO_LARGE, "event_too_large", REFUSED, "an event is larger than the ceiling")

/* cancel, signal */
OUTCOME(CANCELLED, "cancelled", DONE, "the run is cancelled")
OUTCOME(ALREADY_TERMINAL, "already_terminal", REFUSED, "the run had ended before")
OUTCOME(DELIVERED, "delivered", DONE, "the signal is stored for the task")

/* operations */
OUTCOME(CLAIMED, "claimed", DONE, "the operation may be sent by this claim until its deadline")
OUTCOME(RECORDED, "recorded", DONE, "the answer is in the ledger")
OUTCOME(LATE, "late", REFUSED, "the claim is not the latest one; kept as evidence")
OUTCOME(DIGEST_MISMATCH, "digest_mismatch", REFUSED, "the answer speaks of another request than the ledger")
OUTCOME(REGISTERED, "registered", DONE, "the compensation is registered as an operation")
OUTCOME(EXISTS, "exists", DONE, "it is there already")
OUTCOME(NOT_ALLOWED, "not_allowed", REFUSED, "the stored declaration does not allow it")
OUTCOME(SETTLED, "settled", DONE, "the operation's outcome is known from now on")
OUTCOME(EVIDENCE_ONLY, "evidence_only", DONE, "kept as evidence; it settles nothing")
OUTCOME(CONTRADICTION, "contradiction", REFUSED, "it contradicts a settled operation; recorded and alerted")
OUTCOME(RESOLVED, "resolved", DONE, "an operator's decision is recorded")
OUTCOME(STALE, "stale", REFUSED, "it has changed since the operator looked at it")

/* service leases, relay */
OUTCOME(HELD, "held", REFUSED, "another pod holds this service lease")
OUTCOME(DELETED, "deleted", DONE, "the published rows are gone")

/* the database as such */
OUTCOME(DB_UNKNOWN, "db_unknown", UNKNOWN, "the answer of the database was lost: it may have happened")
OUTCOME(DB_RETRY, "db_retry", RETRY, "the database rolled the transaction back for a passing reason")
OUTCOME(DB_DOWN, "db_down", RETRY, "not connected to the database; nothing was sent")
OUTCOME(NOT_PRIMARY, "not_primary", RETRY, "this server is not the writable primary, or not the latest one")
OUTCOME(OTHER_SYSTEM, "other_system", BUG, "this is another database than before; an operator must confirm it")
OUTCOME(DB_REFUSED, "db_refused", BUG, "the database denies this role the call, the login or the connection")
OUTCOME(DB_DRIFT, "db_drift", BUG, "the installed SQL does not fit this program")
OUTCOME(DB_BUG, "db_bug", BUG, "the database reported an error that only a mistake in program or schema explains")
OUTCOME(ITEM_ERROR, "item_error", REFUSED, "the batch failed because of the data of an item: split it")
