"""The one table that pairs and triples of verbs are made from."""

# The condition that a run is in when the race begins; race.world() of race.sql makes them.
WORLDS = ("held", "over", "late", "ready", "parked", "ended")

# verb -> the worlds in which it does something. A function race.<verb>(who) of race.sql calls it.
VERBS = {
    "submit": "ended",
    "replace": "held ready parked ended",          # a submit that cancels its predecessor
    "cancel": "held over late ready parked",
    "retry": "ended",
    "signal": "held ready parked",
    "acquire": "over ready",
    "claim": "ready",
    "renew": "held late",
    "release": "held late",
    "commit": "held late",                         # a checkpoint
    "finish": "held late",                         # commit that ends the run
    "intend": "held",                              # commit that registers an operation
    "intend_anew": "held",                         # commit that replaces a prepared one by a higher version
    "park": "held late",                           # commit that waits
    "sweep": "over late",
    "claim_operations": "held parked",
    "claim_unknown": "held parked ended",
    "record_result": "held late parked ended",
    "record_not_sent": "held late parked ended",
    "record_unknown": "held late parked ended",
    "expire_claims": "late",
    "converge": "held late parked ended",
    "resolve": "held parked ended",
    "cancel_operation": "held parked",
    "raise_capability": "held ended",
    "compensate": "ended",
    "claim_queries": "held ended",
    "gate_close": "held over ready parked",
}

# Verbs of the table that are another verb of the interface.
IS = {"replace": "submit", "finish": "commit", "intend": "commit", "intend_anew": "commit", "park": "commit"}

# Verbs that never wait for a row: what they do not get they pass over, and this is how they say so. ("nothing at all".)
PASSES = {
    "claim": ("nothing",),
    "renew": ("busy running",),
    "claim_operations": ("nothing",),
    "claim_unknown": ("nothing",),
    "claim_queries": ("nothing",),
    "expire_claims": ("expired 0",),
    "sweep": ("ok leases 0 timers 0 exhausted 0 claims 0 missing 0",),
}

# Verbs of the interface that have no race of their own here, and why.
ELSEWHERE = {
    "barrier": "writes no row", "events_delete": "ledger/test_races.py: a shard's takeover", "events_read": "reads",
    "gate_open": "ledger/test_races.py: the gate", "gate_status": "reads", "known": "reads", "register": "no run's rows",
    "operation_story": "reads", "record_query": "gives back a query's claim, which only its holder has",
    "relay_position": "reads", "server_facts": "reads", "service_acquire": "ledger/test_races.py: a shard's takeover",
    "service_release": "ledger/services.sql", "service_renew": "ledger/services.sql", "stats": "reads", "backlog": "reads",
    "story": "reads", "undo_due": "reads", "audit_runs": "reads", "audit_operations": "reads",
    "audit_adopt": "ledger/audit.sql: while the gate is closed", "relay_checked": "ledger/relay.sql: no run's rows",
    "relay_share": "ledger/relay.sql: no run's rows",
}


def worlds_of(*verbs):
    """Where all of them do something; if there is no such world, where most of them do."""
    count = {world: sum(world in VERBS[verb].split() for verb in verbs) for world in WORLDS}
    most = max(count.values())
    chosen = [world for world in WORLDS if count[world] == most]
    return chosen if most == len(verbs) else chosen[:1]
