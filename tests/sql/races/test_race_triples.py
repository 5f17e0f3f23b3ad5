"""Three verbs at once: every three of those that meet on a run in earnest, and others that have shown faults elsewhere."""
import itertools

import pytest

from table import VERBS, worlds_of
from test_race_pairs import raced  # noqa: F401  (a fixture)
from triples import Driver, faults

# The ones that change who may write what; with a write of each kind.
CORE = ("commit", "finish", "acquire", "cancel", "renew", "release", "sweep", "claim_operations", "record_result")
MORE = (
    ("commit", "commit", "commit"), ("finish", "finish", "cancel"), ("acquire", "acquire", "acquire"),
    ("claim", "claim", "acquire"), ("submit", "submit", "retry"), ("submit", "retry", "claim"),
    ("replace", "cancel", "finish"), ("replace", "submit", "retry"), ("replace", "intend", "claim_operations"),
    ("replace", "claim", "acquire"), ("intend", "cancel", "claim_operations"), ("intend_anew", "claim_operations", "cancel"),
    ("intend_anew", "claim_operations", "claim_operations"), ("park", "record_result", "cancel"),
    ("park", "record_result", "sweep"), ("park", "record_result", "acquire"), ("park", "record_unknown", "expire_claims"),
    ("record_result", "record_unknown", "expire_claims"), ("record_result", "record_not_sent", "cancel"),
    ("record_not_sent", "cancel", "claim_operations"), ("record_not_sent", "finish", "expire_claims"),
    ("record_unknown", "claim_unknown", "cancel"), ("claim_unknown", "claim_unknown", "finish"),
    ("claim_unknown", "retry", "record_result"), ("gate_close", "acquire", "claim"), ("gate_close", "claim_operations", "cancel"),
    ("gate_close", "claim_operations", "claim_unknown"), ("signal", "park", "record_result"), ("signal", "cancel", "park"),
    ("signal", "record_result", "acquire"), ("converge", "record_result", "cancel"), ("converge", "expire_claims", "claim_unknown"),
    ("converge", "record_not_sent", "park"), ("resolve", "claim_unknown", "cancel"), ("resolve", "converge", "finish"),
    ("resolve", "claim_unknown", "claim_queries"), ("cancel_operation", "claim_operations", "cancel"),
    ("cancel_operation", "intend_anew", "finish"), ("compensate", "retry", "resolve"), ("compensate", "compensate", "claim_unknown"),
)
TRIPLES = [*itertools.combinations(CORE, 3), *MORE]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", dict.fromkeys(triple[0] for triple in TRIPLES))
def test_triples_of(raced, first):  # noqa: F811
    driver, wrong, races = Driver(raced), [], 0
    for verbs in [triple for triple in TRIPLES if triple[0] == first]:
        wrong += faults(driver, worlds_of(*verbs)[0], verbs)
        races += 1
    blocked, chains = driver.blocked, driver.chains
    driver.close()
    assert not wrong, f"{len(wrong)}:\n" + "\n\n".join(wrong[:5])
    assert blocked, "nobody ever waited: nothing was raced"
    print(f"{first}: {races} triples, {blocked} calls waited, in {chains} races for one that waited itself")


def test_enough():
    assert len(TRIPLES) >= 60 and {v for t in TRIPLES for v in t} <= set(VERBS)
