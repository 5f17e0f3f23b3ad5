"""Isolation specs for pairs of verbs, written from table.py, and their output read back.

For the left verb A and each right verb B, in each world in which the pair means something:

    A B     B A                       the two serial orders: what a race may end in
    A begins, B comes, A commits      B waits for A, or passes over what A holds
    A begins, B comes, A is undone    B alone, or nothing
"""
import re

from table import worlds_of


def spec(left, rights):
    """(text of the spec, [(permutation's steps, right verb or None, world, kind)])"""
    lines = [f"# {left} against every verb. Written by tests/sql/races/specs.py.", "session left",
             "step begin { BEGIN; }", "step commit { COMMIT; }", "step undo { ROLLBACK; }",
             f"step left_{left} {{ SELECT 'left: ' || race.{left}('left') AS answer; }}", "", "session right"]
    lines += [f"step right_{right} {{ SELECT 'right: ' || race.{right}('right') AS answer; }}" for right in rights]
    lines += ["", "session judge"]
    cases, worlds = [], {right: worlds_of(left, right) for right in rights}
    for world in sorted({w for ws in worlds.values() for w in ws}):
        lines.append(f"step in_{world} {{ SELECT race.world('{world}'); }}")
        cases += [((f"in_{world}", "state"), None, world, "nothing"),
                  ((f"in_{world}", f"left_{left}", "state"), None, world, "left")]
    lines.append("step state { SELECT 'state: ' || race.state() AS state UNION ALL "
                 "SELECT 'broken: ' || b FROM race.broken() b WHERE b IS NOT NULL; }")
    for right in rights:
        a, b = f"left_{left}", f"right_{right}"
        for world in worlds[right]:
            cases += [((f"in_{world}", *steps, "state"), right, world, kind) for kind, steps in
                      (("right", (b,)), ("left right", (a, b)), ("right left", (b, a)),
                       ("committed", ("begin", a, b, "commit")), ("undone", ("begin", a, b, "undo")))]
    lines += [""] + ["permutation " + " ".join(steps) for steps, *_ in cases]
    return "\n".join(lines) + "\n", cases


class Ended:
    """What one permutation ended in."""

    def __init__(self, text):
        self.text = text
        self.answers = dict(re.findall(r"^(left|right): (.*?) *$", text, flags=re.M))
        self.state = "\n".join(re.findall(r"^state: (.*?) *$", text, flags=re.M))
        self.broken = re.findall(r"^broken: (.*?) *$", text, flags=re.M)
        self.errors = re.findall(r"^.*ERROR: .*$|^.*invalid permutation.*$|^isolationtester: .*$", text, flags=re.M)
        self.waited = re.findall(r"^step (\w+): .*<waiting \.\.\.>$", text, flags=re.M)

    def same(self, other):
        return self.answers == other.answers and self.state == other.state


def read(output, cases):
    """{(right, world, kind): Ended}, one for each case in its order."""
    blocks = re.split(r"^starting permutation: ", output, flags=re.M)[1:]
    assert len(blocks) == len(cases), output[-2000:]
    ended = {}
    for block, (steps, *case) in zip(blocks, cases):
        assert block.splitlines()[0].split() == list(steps), block
        ended[tuple(case)] = Ended(block)
    return ended


def faults(left, ended, passes):
    """What is wrong, as text; empty when every race ended as it may."""
    wrong, waited = [], 0
    for (right, world, kind), end in ended.items():
        place = f"{world}: {left}, {right}: {kind}"
        if end.errors or end.broken or not end.state:
            wrong.append(f"{place}: {'; '.join(end.errors + end.broken) or 'no state'}\n{end.text}")
            continue
        if kind not in ("committed", "undone"):
            continue
        waited += bool(end.waited)
        passed = end.answers.get("right") in passes.get(right, ())
        if kind == "committed":
            allowed = [ended[right, world, "left right"], ended[right, world, "right left"]]
            good = any(end.same(serial) for serial in allowed)
            good |= passed and end.state == ended[None, world, "left"].state
        else:
            allowed = [ended[right, world, "right"]]
            good = end.answers["right"] == allowed[0].answers["right"] and end.state == allowed[0].state
            good |= passed and end.state == ended[None, world, "nothing"].state
        if not good:
            wrong.append(f"{place} is no serial result\n{end.text}" + "\nallowed:\n"
                         + "\n".join(f"{a.answers} {a.state}" for a in allowed))
        if right in passes and end.waited and "gate_close" not in (left, right):
            wrong.append(f"{place}: {right} waited, and should pass over\n{end.text}")
    return wrong, waited
