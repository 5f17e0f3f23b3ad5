"""The verbs of the scenes. Each is one function; its first line is its grammar, printed by `run.py --verbs`.

To add one: write a function with @verb and a grammar line. It gets the world, its words (variables replaced) and,
where the grammar ends in [within TIME], the time limit.
"""
import json
import os
import re
import signal
import time
import urllib.request

from language import SceneError, holds, matches, seconds
from world import Pod, SceneFailed, Session, log_time

VERBS = {}
DEFAULT_LIMIT = 10.0


def verb(name):
    def register(function):
        VERBS[name] = function
        return function
    return register


def run_statement(world, statement, words):
    name = words[0].text
    if name not in VERBS:
        raise SceneError(f"there is no verb \"{name}\"; the verbs are {' '.join(sorted(VERBS))}")
    words, limit = words[1:], DEFAULT_LIMIT
    if len(words) >= 2 and words[-2] == "within":
        limit, words = seconds(words[-1].text), words[:-2]
    try:
        VERBS[name](world, words, limit)
    except IndexError:
        raise SceneError(f"\"{statement}\": words are missing. {grammar(name)}") from None
    except json.JSONDecodeError as error:
        raise SceneError(f"\"{statement}\": the block is no JSON: {error}") from None


def grammar(name):
    return "The grammar is: " + " | ".join(VERBS[name].__doc__.strip().splitlines()[0].split(" || "))


def as_json(word):
    return json.loads("{" + word.text + "}")


# ---- what is declared before pods start ----------------------------------------------------------------------------

@verb("config")
def config(world, words, _limit):
    """config SECTION.NAME = VALUE"""
    section, _, name = words[0].text.partition(".")
    if section in ("tool", "handler"):   # their second word is a name
        section, _, name = words[0].text.rpartition(".")
    if words[1] != "=":
        raise SceneError(grammar("config"))
    world.set(section, name, " ".join(w.text for w in words[2:]))


@verb("handler")
def handler(world, words, _limit):
    """handler NAME { one option a line: name = value }"""
    declare(world, f"handler.{words[0].text}", words[1].text)


@verb("tool")
def tool(world, words, _limit):
    """tool NAME at REMOTE PATH { one option a line: name = value }"""
    name, remote, path = words[0].text, find(world.remotes, words[2], "remote"), words[3].text
    section = f"tool.{name}"
    for key, value in (("kind", "http"), ("url", remote.url + path), ("allow_private", "true"),
                       ("timeout_ms", "2000"), ("connect_timeout_ms", "1000")):
        world.set(section, key, value)
    declare(world, section, words[4].text)


def declare(world, section, block):
    for line in filter(None, (line.strip() for line in block.splitlines())):
        key, equals, value = (part.strip() for part in line.partition("="))
        if not equals:
            raise SceneError(f"\"{line}\" is no option: say name = value")
        world.set(section, key, value)


# ---- pods ----------------------------------------------------------------------------------------------------------

@verb("pod")
def pod(world, words, limit):
    """pod NAME start [SECTION.NAME=VALUE …] || pod NAME stop|cont|kill|term || pod NAME ended == CODE [within TIME]"""
    name, what = words[0].text, words[1].text
    if what == "start":
        actor = world.pods.setdefault(name, None) or Pod(world, name)
        world.pods[name] = actor
        actor.start([w.text for w in words[2:]])
        return
    actor = find(world.pods, words[0], "pod")
    if what == "ended":
        world.wait(lambda: f"{name} has not ended", lambda: actor.process.poll() is not None, limit)
        if not holds(actor.process.returncode, words[2].text, words[3].text):
            raise SceneFailed(f"{name} ended with {actor.process.returncode}, not {words[2].text} {words[3].text}")
        return
    number = {"stop": signal.SIGSTOP, "cont": signal.SIGCONT, "kill": signal.SIGKILL, "term": signal.SIGTERM}.get(what)
    if number is None:
        raise SceneError(grammar("pod"))
    actor.signal(number)
    if what == "stop":   # a signal is only sent; the scene goes on when the process really stands still
        world.wait(f"{name} does not stand still", lambda: process_state(actor.process.pid) == "T", limit)
    if what == "kill":
        actor.process.wait(10)


def process_state(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        return stat.read().rpartition(")")[2].split()[0]


@verb("ready")
def ready(world, words, limit):
    """ready POD … [within TIME]"""
    for word in words:
        actor = find(world.pods, word, "pod")

        def is_ready(actor=actor):
            if actor.process.poll() is not None:
                raise SceneFailed(f"{actor.name} ended with {actor.process.returncode} while starting")
            return http(admin(actor) + "/readyz")[0] == 200
        world.wait(f"{word.text} is not ready", is_ready, max(limit, 30.0))


def admin(actor):
    """Where the pod's console listens; it says so in its log."""
    for line in actor.lines():
        if line.get("event") == "console.listening":
            return f"http://{line['address']}"
    return "http://127.0.0.1:9"   # not yet: nobody listens there


def http(url):
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""
    except OSError:
        return 0, ""


# ---- stop points ---------------------------------------------------------------------------------------------------

@verb("hold")
def hold(world, words, _limit):
    """hold POINT in POD"""
    open(stop_file(world, words[2], words[0].text + ".hold"), "w", encoding="utf-8").close()


@verb("die")
def die(world, words, _limit):
    """die at POINT in POD"""
    open(stop_file(world, words[3], words[1].text + ".die"), "w", encoding="utf-8").close()


@verb("reached")
def reached(world, words, limit):
    """reached POINT by POD [within TIME]"""
    actor, point = find(world.pods, words[2], "pod"), words[0].text
    world.wait(f"{actor.name} did not come to {point}",
               lambda: any(f.startswith(point + ".") and f.endswith(".reached") for f in os.listdir(actor.stops)), limit)


@verb("release")
def release(world, words, _limit):
    """release POINT in POD"""
    os.unlink(stop_file(world, words[2], words[0].text + ".hold"))


def stop_file(world, word, name):
    actor = find(world.pods, word, "pod") if word.text in world.pods else Pod(world, word.text)
    world.pods[word.text] = actor
    return os.path.join(actor.stops, name)


# ---- records -------------------------------------------------------------------------------------------------------

@verb("submit")
def submit(world, words, _limit):
    """submit {JSON} [times N]   (with N, "%d" in it becomes 1 … N)"""
    times = int(words[2].text) if len(words) > 1 and words[1] == "times" else 0
    for i in range(1, times + 1) if times else (None,):
        text = "{" + words[0].text + "}"
        text = text if i is None else text.replace("%d", str(i))
        world.produce("tasks", json.loads(text).get("task_id"), text)


@verb("produce")
def produce(world, words, _limit):
    """produce TOPIC KEY "bytes, with \\x00 escapes" | {JSON}"""
    value = words[2]
    body = "{" + value.text + "}" if value.block else re.sub(
        rb"\\x([0-9a-fA-F]{2})", lambda m: bytes([int(m.group(1), 16)]), value.text.encode())
    world.produce(words[0].text, words[1].text, body)


@verb("command")
def command(world, words, limit):
    """command ARGUMENT … exits CODE [within TIME]"""
    arguments = [w.text if not w.block else "{" + w.text + "}" for w in words]
    wanted = 0
    if arguments[-2] == "exits":
        wanted, arguments = int(arguments[-1]), arguments[:-2]
    done = world.run_command(*arguments, check=False, within=max(limit, 30))
    world.variables["OUTPUT"] = done.stdout.strip()
    if done.returncode != wanted:
        raise SceneFailed(f"holdfast {' '.join(arguments)} ended with {done.returncode}, not {wanted}: "
                          f"{done.stdout}{done.stderr}")


@verb("as")
def as_role(world, words, limit):
    """as ROLE command ARGUMENT … exits CODE   (pod, operator or viewer)"""
    before = world.sections["postgres"]["dsn"]
    world.set("postgres", "dsn", world.services.dsn_of(world, words[0].text))
    try:
        command(world, words[2:], limit)
    finally:
        world.set("postgres", "dsn", before)


# ---- facts ---------------------------------------------------------------------------------------------------------

@verb("let")
def let(world, words, limit):
    """let NAME = sql {query} [within TIME]   (waits until it answers something)"""
    found = []

    def fact():
        found[:] = [world.query(words[3].text)]
        return found[0] != ""
    world.wait(f"the query for ${words[0].text} answers nothing", fact, limit)
    world.variables[words[0].text] = found[0]


@verb("run")
def run(world, words, limit):
    """run NAME of TASK [within TIME]   (sets $NAME to the task's newest run)"""
    let(world, [words[0], words[0], words[0], type(words[0])(
        f"select run_id from {world.schema}.agent_runs where task_id = '{words[2].text}'"
        " order by created_at desc, run_id desc limit 1")], limit)


@verb("sql")
def sql(world, words, _limit):
    """sql {statements}"""
    world.query(words[0].text)


@verb("expect")
def expect(world, words, limit):
    """expect run RUN FIELD == VALUE … | operation ID FIELD == VALUE … | sql {query} == VALUE | event {JSON} [count == N] | topic NAME {JSON} [count == N] | log POD {JSON} [count == N] | metric POD NAME{label="x"} == N | remote NAME … | session NAME waits | answers | == TEXT | contains TEXT [within TIME]"""
    kind = words[0].text
    if kind not in EXPECT:
        raise SceneError(grammar("expect"))
    EXPECT[kind](world, words[1:], limit)


def expect_row(world, words, limit, select, named):
    comparisons = [(words[i].text, words[i + 1].text, wanted_text(words[i + 2])) for i in range(1, len(words), 3)]
    seen = {}

    def fact():
        text = world.query(select(words[0].text))
        seen.clear()
        seen.update(json.loads(text) if text else {})
        return bool(seen) and all(holds(plain(seen.get(f)), op, value) for f, op, value in comparisons)
    wanted = " ".join(" ".join(c) for c in comparisons)
    world.wait(lambda: f"{named} {words[0].text} is {json.dumps(seen)}, wanted {wanted}", fact, limit)


def plain(value):
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True)


def wanted_text(word):
    """A block is JSON and compared as such, whatever its blanks."""
    return json.dumps(as_json(word), sort_keys=True) if word.block else word.text


def expect_run(world, words, limit):
    expect_row(world, words, limit, lambda run_id:
               f"select to_jsonb(r) || jsonb_build_object('owner', l.owner, 'epoch', l.epoch) from {world.schema}.agent_runs r"
               f" join {world.schema}.worker_leases l using (run_id) where run_id = '{run_id}'", "run")


def expect_operation(world, words, limit):
    expect_row(world, words, limit, lambda operation:
               f"select to_jsonb(o) from {world.schema}.tool_operations o where operation_id = '{operation}'", "operation")


def expect_sql(world, words, limit):
    seen = []

    def fact():
        seen[:] = [world.query(words[0].text)]
        return holds(seen[0], words[1].text, " ".join(w.text for w in words[2:]))
    world.wait(lambda: f"the query answers \"{seen[0]}\", wanted {' '.join(w.text for w in words[1:])}", fact, limit)


def count_clause(words):
    """[count OP N] at the end; without it at least one."""
    if words and words[0] == "count":
        return words[1].text, words[2].text
    return ">=", "1"


def expect_count(world, what, values, pattern, clause, limit):
    operator, wanted = clause
    found = []

    def fact():
        found[:] = [v for v in values() if matches(v, pattern)]
        return holds(len(found), operator, wanted)
    world.wait(lambda: f"{len(found)} {what} like {json.dumps(pattern)}, wanted {operator} {wanted}", fact, limit)


def decoded(records):
    for record in records:
        try:
            value = json.loads(record["value"])
        except ValueError:
            value = {}
        if isinstance(value, dict):
            yield dict(value, headers=record["headers"], key=record["key"])


def expect_event(world, words, limit):
    reader = world.reader("results")
    expect_count(world, "events", lambda: decoded(reader.all()), as_json(words[0]), count_clause(words[1:]), limit)


def expect_topic(world, words, limit):
    reader = world.reader(words[0].text)
    expect_count(world, f"records on {words[0].text}", lambda: decoded(reader.all()), as_json(words[1]),
                 count_clause(words[2:]), limit)


def expect_log(world, words, limit):
    actor = find(world.pods, words[0], "pod")
    expect_count(world, f"log lines of {actor.name}", actor.lines, as_json(words[1]), count_clause(words[2:]), limit)


def expect_metric(world, words, limit):
    actor, name = find(world.pods, words[0], "pod"), words[1].text
    seen = []

    def fact():
        seen[:] = [metric(http(admin(actor) + "/metrics")[1], name)]
        return holds(seen[0], words[2].text, words[3].text)
    world.wait(lambda: f"{actor.name} counts {name} {seen[0]}, wanted {words[2].text} {words[3].text}", fact, limit)


def metric(text, name):
    """The value of a series; 0 when nothing was counted under it yet. Without labels: the sum of its series."""
    total = 0.0
    for line in text.splitlines():
        series, _, value = line.rpartition(" ")
        if series == name or ("{" not in name and series.startswith(name + "{")):
            total += float(value)
    return total


def expect_session(world, words, limit):
    session = find(world.sessions, words[0], "session")
    if words[1] == "contains":
        world.wait(lambda: f"session {session.name} answered \"{session.answered()}\"",
                   lambda: words[2].text in (session.answered() or ""), limit)
        return
    if words[1] == "waits":
        world.wait(f"session {session.name} does not wait for a lock", lambda: waits_for_lock(world, session.name), limit)
        if session.answered() is not None:
            raise SceneFailed(f"session {session.name} answered: {session.answered()}")
        return
    world.wait(f"session {session.name} does not answer", lambda: session.answered() is not None, limit)
    if words[1] != "answers" and not holds(session.answered(), words[1].text, " ".join(w.text for w in words[2:])):
        raise SceneFailed(f"session {session.name} answered \"{session.answered()}\"")


def waits_for_lock(world, name):
    return world.query("select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
                       f" and application_name like '%{name}'") != "0"


def expect_remote(world, words, limit):
    """Delegates to the remote: expect remote NAME executed KEY == N, expect remote NAME requests == N."""
    remote = find(world.remotes, words[0], "remote")
    operator = len(words) - 2
    seen = []

    def fact():
        seen[:] = [remote.count(words[1].text, [w.text for w in words[2:operator]])]
        return holds(seen[0], words[operator].text, words[operator + 1].text)
    world.wait(lambda: f"remote {remote.name} counts {seen[0]} {words[1].text}, wanted {words[operator].text} "
               f"{words[operator + 1].text}", fact, limit)


def expect_race(world, words, _limit):
    """expect race OUTCOME == N: how many of the last race answered it."""
    count = sum(1 for answer in world.races if answer.split("|")[0] == words[0].text)
    if not holds(count, words[1].text, words[2].text):
        raise SceneFailed(f"{count} of the race answered {words[0].text}, wanted {words[1].text} {words[2].text}: "
                          f"{sorted(world.races)}")


EXPECT = {"run": expect_run, "operation": expect_operation, "sql": expect_sql, "event": expect_event,
          "topic": expect_topic, "log": expect_log, "metric": expect_metric, "session": expect_session,
          "remote": expect_remote, "race": expect_race}


# ---- the world around the pods -------------------------------------------------------------------------------------

@verb("remote")
def remote(world, words, _limit):
    """remote NAME start || remote NAME answers {script} || remote NAME releases"""
    name, what = words[0].text, words[1].text
    if what == "start":
        world.remotes[name] = world.services.remote(world, name)
    elif what == "answers":
        find(world.remotes, words[0], "remote").script(as_json(words[2]))
    elif what == "releases":
        find(world.remotes, words[0], "remote").release()
    else:
        raise SceneError(grammar("remote"))


@verb("session")
def session(world, words, limit):
    """session NAME [as ROLE] {sql}   (waits for the answer) || session NAME sends {sql}"""
    name, rest = words[0].text, words[1:]
    dsn = world.dsn
    if rest[0] == "as":
        dsn, rest = world.services.dsn_of(world, rest[1].text), rest[2:]
    if name not in world.sessions:
        world.sessions[name] = Session(world, name, dsn)
    actor = world.sessions[name]
    sends = rest[0] == "sends"
    actor.send(rest[-1].text)
    if not sends:
        world.wait(f"session {name} does not answer", lambda: actor.answered() is not None, limit)


@verb("race")
def race(world, words, limit):
    """race N as ROLE {sql} [within TIME]   (N sessions, let go at the same instant; "%d" becomes 1 … N)"""
    count, dsn = int(words[0].text), world.services.dsn_of(world, words[2].text)
    starter = Session(world, "starter", world.dsn)
    starter.send("select pg_advisory_lock(777)")
    world.wait("the starter has no lock", lambda: starter.answered() is not None, limit)
    runners = [Session(world, f"race{i}", dsn) for i in range(1, count + 1)]
    try:
        for i, runner in enumerate(runners, 1):
            runner.send("select 'go' from (select pg_advisory_xact_lock_shared(777)) s;\n" + words[3].text.replace("%d", str(i)))
        world.wait("not all runners are at the start", lambda: int(world.query(
            "select count(*) from pg_locks where locktype = 'advisory' and objid = 777 and not granted")) == count, limit)
        starter.send("select pg_advisory_unlock(777)")
        world.wait("the race does not end", lambda: all(r.answered() is not None for r in runners), limit)
        world.races = [r.answered().splitlines()[-1] if r.answered() else "" for r in runners]
    finally:
        for actor in (starter, *runners):
            actor.end()


@verb("redis")
def redis(world, words, _limit):
    """redis down|up|pause|resume"""
    world.services.redis(world, words[0].text)


@verb("postgres")
def postgres(world, words, _limit):
    """postgres down|up|pause|resume   (the server all scenes share: only for scenes that run alone)"""
    world.services.postgres(words[0].text)


@verb("passed")
def passed(world, words, limit):
    """passed {query of a timestamptz} [within TIME]   (waits until the database's clock is beyond it)"""
    world.wait("the time has not come", lambda: world.query(
        f"select coalesce(clock_timestamp() > ({words[0].text}), false)") == "t", limit)


@verb("quiet")
def quiet(world, words, limit):
    """quiet [within TIME]   (every run has ended, every event is published)"""
    open_runs = (f"select count(*) from {world.schema}.agent_runs"
                 " where status in ('pending', 'running')")
    world.wait(lambda: f"{world.query(open_runs)} runs are open", lambda: world.query(open_runs) == "0", limit)
    rows = f"select count(*) from {world.schema}.outbox_events"
    world.wait(lambda: f"{world.query(rows)} events are not published", lambda: world.query(rows) == "0", limit)


@verb("touch")
def touch(_world, words, _limit):
    """touch FILE   (what a handler of the scene waits for)"""
    open(words[0].text, "w", encoding="utf-8").close()


@verb("output")
def output(world, words, _limit):
    """output contains TEXT   (of the last command)"""
    if words[1].text not in world.variables.get("OUTPUT", ""):
        raise SceneFailed(f"the command's output does not contain \"{words[1].text}\": {world.variables.get('OUTPUT')}")


@verb("note")
def note(_world, _words, _limit):
    """note "a sentence for the report" """


def find(group, word, kind):
    if group.get(word.text) is None:
        raise SceneError(f"there is no {kind} called {word.text}")
    return group[word.text]


def always(world):
    """What must hold at the end of every scene."""
    stranded = world.query(f"select coalesce(string_agg(run_id::text, ' '), '') from {world.schema}.stranded")
    if stranded:
        raise SceneFailed(f"stranded runs: {stranded}")
    seen = {}
    for record in world.reader("results").all():
        identity = record["headers"].get("ce_id")
        if identity in seen:
            raise SceneFailed(f"event {identity} was read twice: {record['value']}")
        seen[identity] = record
    for actor in world.pods.values():
        for line in actor.lines():
            text = line.get("text", "")
            if "Sanitizer" in text or "runtime error:" in text or "CHECK" in text:
                raise SceneFailed(f"{actor.name}: {text}")
