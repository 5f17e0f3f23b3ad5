"""Logging in as each role: what it may do, and that everything else is answered 42501.

Each forbidden attempt is a statement of a person or a pod that means harm: writing past the functions, reading what it
should not, putting objects of its own before ours, becoming somebody else, loosening what holds it.
"""
import contextlib
import uuid

import psycopg
import pytest

TABLES = ["agent_tasks", "agent_runs", "run_data", "worker_leases", "tool_operations", "requests", "ready", "timers",
          "signals", "claims", "operation_evidence", "run_history", "refusals", "outbox_events", "relay_positions", "relay_pods",
          "service_leases", "tool_limits", "schedules", "registry", "control", "gate_log", "gauges", "run_transition", "operation_transition"]
WORKER = {"submit", "acquire", "claim", "renew", "release", "commit", "cancel", "retry", "signal", "sweep", "claim_operations",
          "claim_unknown", "claim_queries", "record_query", "converge", "compensate", "undo_due", "operation_story", "record_result", "record_not_sent", "record_unknown", "expire_claims", "service_acquire",
          "service_renew", "service_release", "events_read", "events_delete", "relay_position", "relay_checked",
          "relay_share", "barrier", "gate_status",
          "gate_close", "register", "known", "server_facts", "stats", "backlog", "story"}
OPERATOR = {"submit", "cancel", "retry", "signal", "converge", "compensate", "undo_due", "resolve",
            "cancel_operation", "raise_capability", "operation_story", "relay_position", "gate_status", "gate_close", "gate_open", "audit_runs", "audit_operations", "audit_adopt", "known",
            "server_facts", "stats", "backlog", "story"}
VIEWER = {"operation_story", "audit_runs", "audit_operations", "relay_position", "gate_status", "known", "server_facts", "stats", "backlog", "story"}
ALLOWED = {"worker": WORKER, "operator": OPERATOR, "viewer": VIEWER}

WRITES = [
    "INSERT INTO holdfast.{t} DEFAULT VALUES", "DELETE FROM holdfast.{t}", "TRUNCATE holdfast.{t}",
]
ATTEMPTS = [
    # The state itself.
    "UPDATE holdfast.worker_leases SET owner = 'me', epoch = epoch + 1",
    "UPDATE holdfast.worker_leases SET expires_at = 'infinity'",
    "UPDATE holdfast.agent_runs SET status = 'succeeded'",
    "UPDATE holdfast.agent_runs SET checkpoint = '{{}}', revision = revision + 1",
    "UPDATE holdfast.tool_operations SET status = 'prepared', attempts = 0",
    "UPDATE holdfast.tool_operations SET status = 'succeeded', result = '{{}}'",
    "UPDATE holdfast.control SET gate_closed = false",
    "UPDATE holdfast.control SET max_lease_ttl_ms = 1000000000",
    "UPDATE holdfast.service_leases SET owner = 'me', expires_at = 'infinity'",
    "UPDATE holdfast.outbox_events SET body = '{{}}'",
    "UPDATE holdfast.relay_positions SET last_batch = 0",
    "UPDATE holdfast.requests SET outcome = 'created'",
    "UPDATE holdfast.operation_evidence SET detail = '{{}}'",
    "UPDATE holdfast.registry SET declaration = '{{}}'",
    "INSERT INTO holdfast.operation_transition VALUES ('succeeded', 'x', 'prepared', 'x')",
    "INSERT INTO holdfast.run_transition VALUES ('failed', 'x', 'running', 'x')",
    "SELECT nextval('holdfast.outbox_seq')", "SELECT setval('holdfast.outbox_seq', 1)",
    # Locks on rows and tables hold others up.
    "SELECT * FROM holdfast.worker_leases FOR UPDATE", "SELECT * FROM holdfast.control FOR KEY SHARE",
    "LOCK TABLE holdfast.worker_leases", "LOCK TABLE holdfast.tool_operations IN ACCESS SHARE MODE",
    # What is inside.
    "SELECT * FROM holdfast.tool_operations", "SELECT input FROM holdfast.run_data",
    "SELECT request_body FROM holdfast.tool_operations", "COPY holdfast.agent_runs TO STDOUT",
    "SELECT checkpoint FROM holdfast.agent_runs", "SELECT record FROM holdfast.requests",
    # The inner functions.
    "SELECT holdfast.emit(clock_timestamp(), '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}')",
    "SELECT holdfast.wake_runs('{{}}', clock_timestamp())", "SELECT holdfast.gate_open()", "SELECT holdfast.gate_settle()",
    "SELECT holdfast.gate_key()",
    "SELECT holdfast.claim_take('x', gen_random_uuid(), '{{}}', clock_timestamp(), clock_timestamp())",
    "SELECT holdfast.cancel_operations(clock_timestamp(), '{{}}')", "SELECT holdfast.service_holds('sweep', 'x', 1)",
    # Objects of one's own, to be found before ours or to stay.
    "CREATE TABLE holdfast.x ()", "CREATE TABLE holdfast_v1.x ()", "CREATE TABLE public.x ()",
    "CREATE TEMPORARY TABLE worker_leases (run_id uuid)", "CREATE TEMPORARY SEQUENCE outbox_seq",
    "CREATE TEMPORARY VIEW control AS SELECT 1", "CREATE SCHEMA mine", "CREATE SCHEMA pg_mine",
    "CREATE FUNCTION holdfast_v1.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'",
    "CREATE FUNCTION holdfast.emit() RETURNS void LANGUAGE sql AS ''",
    "CREATE FUNCTION public.f() RETURNS void LANGUAGE sql AS ''",
    "CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = uuid, FUNCTION = texteq)",
    "CREATE TYPE public.x AS ENUM ('a')", "CREATE EXTENSION pg_stat_statements",
    # Ours, changed.
    "CREATE OR REPLACE FUNCTION holdfast_v1.barrier() RETURNS TABLE (outcome text) LANGUAGE sql AS 'SELECT 1::text'",
    "DROP FUNCTION holdfast_v1.barrier()", "ALTER FUNCTION holdfast_v1.barrier() SECURITY INVOKER",
    "ALTER FUNCTION holdfast_v1.barrier() RESET search_path", "DROP SCHEMA holdfast_v1 CASCADE",
    "ALTER TABLE holdfast.agent_runs DISABLE TRIGGER guard_step", "DROP TRIGGER guard_step ON holdfast.agent_runs",
    "ALTER TABLE holdfast.worker_leases ADD COLUMN x integer", "DROP TABLE holdfast.refusals",
    "CREATE INDEX ON holdfast.worker_leases (expires_at)", "ALTER TABLE holdfast.outbox_events SET UNLOGGED",
    "CREATE TRIGGER t BEFORE UPDATE ON holdfast.agent_runs EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "CREATE RULE r AS ON UPDATE TO holdfast.worker_leases DO INSTEAD NOTHING",
    # Somebody else.
    "SET ROLE holdfast_owner", "SET SESSION AUTHORIZATION postgres", "SET ROLE postgres",
    "GRANT holdfast_owner TO {me}", "ALTER ROLE {me} SUPERUSER", "ALTER ROLE holdfast_owner LOGIN",
    "CREATE ROLE somebody LOGIN", "ALTER ROLE holdfast_worker SET search_path = mine",
    "ALTER DATABASE {db} SET search_path = mine", "ALTER DATABASE {db} OWNER TO {me}",
    "ALTER DEFAULT PRIVILEGES FOR ROLE holdfast_owner GRANT EXECUTE ON FUNCTIONS TO PUBLIC",
    # The server.
    "ALTER SYSTEM SET fsync = off", "SET session_replication_role = replica", "SELECT pg_reload_conf()",
    "COPY (SELECT 1) TO PROGRAM 'true'", "COPY (SELECT 1) TO '/tmp/x'", "SELECT pg_read_file('/etc/passwd')",
    "SELECT lo_import('/etc/passwd')", "SELECT pg_switch_wal()", "SELECT pg_promote()", "CHECKPOINT",
    "SELECT pg_create_physical_replication_slot('mine')", "CREATE PUBLICATION p FOR ALL TABLES",
    "CREATE DATABASE mine", "CREATE TABLESPACE mine LOCATION '/tmp'", "SET log_statement = 'none'",
    "CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'postgres' AND pid <> pg_backend_pid()",
]


@pytest.fixture
def login(logins):
    """Makes a login role in one of the groups, as roles.sql tells an administrator to, and connects as it."""
    made, open_connections = [], []

    def make(group):
        me = f"login_{group}_{uuid.uuid4().hex[:8]}"
        logins.admin(f"CREATE ROLE {me} LOGIN IN ROLE holdfast_{group} CONNECTION LIMIT 20")
        made.append(me)
        connection = psycopg.connect(logins.url(me), autocommit=True)
        open_connections.append(connection)
        return me, connection

    yield make
    for connection in open_connections:
        connection.close()
    for me in made:
        logins.drop(me)


def sqlstate(connection, statement):
    """The SQLSTATE of a statement; 00000 if it was accepted. What it did is rolled back, where it can be."""
    alone = statement.startswith(("ALTER SYSTEM", "CREATE DATABASE", "CREATE TABLESPACE"))
    try:
        with contextlib.nullcontext() if alone else connection.transaction(force_rollback=True):
            cursor = connection.cursor()
            if statement.startswith("COPY") and statement.endswith("TO STDOUT"):
                with cursor.copy(statement) as copy:
                    for _ in copy:
                        pass
            else:
                cursor.execute(statement)
        return "00000"
    except psycopg.Error as error:
        return error.sqlstate


@pytest.mark.parametrize("group", ["worker", "operator", "viewer"])
def test_forbidden(login, logins, group):
    me, connection = login(group)
    statements = [a.format(me=me, db=logins.name) for a in ATTEMPTS]
    statements += [w.format(t=table) for table in TABLES for w in WRITES]
    wrong = {s: state for s in statements if (state := sqlstate(connection, s)) != "42501"}
    assert len(statements) >= 30 and not wrong


@pytest.mark.parametrize("group", ["worker", "operator", "viewer"])
def test_functions(login, db, group):
    """Exactly the table's functions: every other one is 42501, also those added later and not thought of here."""
    me, connection = login(group)
    functions = db.sql("SELECT proname AS name, oid::regprocedure::text AS signature, pronargs AS n FROM pg_proc "
                       "WHERE pronamespace = 'holdfast_v1'::regnamespace")
    assert {f.name for f in functions} >= WORKER | OPERATOR | VIEWER
    for f in functions:
        allowed = db.one("SELECT has_function_privilege(%s, %s, 'EXECUTE')", me, f.signature)
        assert allowed == (f.name in ALLOWED[group]), f.signature
        if not allowed:
            call = f"SELECT * FROM holdfast_v1.{f.name}({', '.join(['NULL'] * f.n)})"
            assert sqlstate(connection, call) == "42501", call
    inner = db.sql("SELECT oid::regprocedure::text AS signature FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace")
    for f in inner:
        assert not db.one("SELECT has_function_privilege(%s, %s, 'EXECUTE')", me, f.signature), f


def test_nobody_has_a_table(db):
    """No privilege on a table or sequence for anybody but the owner; views only for operator and viewer."""
    rows = db.sql("""
        SELECT c.relname AS name, c.relkind::text AS kind, a.grantee::regrole::text AS who, a.privilege_type AS what
          FROM pg_class c, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a
         WHERE c.relnamespace IN ('holdfast'::regnamespace, 'holdfast_v1'::regnamespace)
           AND c.relkind IN ('r', 'p', 'S', 'v') AND a.grantee <> c.relowner""")
    assert all(r.kind == "v" and r.what == "SELECT" and r.who in ("holdfast_operator", "holdfast_viewer") for r in rows), rows


def test_owner(db):
    """One owner, that cannot log in and is nothing more; every interface function is hardened like the next."""
    assert db.sql("""SELECT rolname FROM pg_roles WHERE rolname LIKE 'holdfast\\_%%' AND rolname !~ '^holdfast_pod'
                     AND (rolsuper OR rolcanlogin OR rolcreaterole OR rolcreatedb OR rolbypassrls OR rolreplication)""") == []
    assert db.sql("""SELECT c.relname FROM pg_class c WHERE c.relnamespace IN ('holdfast'::regnamespace,
                     'holdfast_v1'::regnamespace) AND c.relkind IN ('r', 'v', 'S') AND c.relowner <> 'holdfast_owner'::regrole""") == []
    functions = db.sql("""
        SELECT p.proname AS name, p.pronamespace::regnamespace::text AS schema, p.prosecdef AS definer,
               p.provolatile::text AS volatility, p.proowner::regrole::text AS owner, coalesce(p.proconfig, '{}') AS config
          FROM pg_proc p WHERE p.pronamespace IN ('holdfast'::regnamespace, 'holdfast_v1'::regnamespace)""")
    for f in functions:
        assert f.owner == "holdfast_owner", f
        if f.schema == "holdfast_v1":
            assert f.definer and f.volatility == "v", f
            assert "search_path=pg_catalog, holdfast, pg_temp" in f.config, f
        # An inner function runs under its caller's path, or under the same one: pg_temp is never before ours.
        assert all(c == "search_path=pg_catalog, holdfast, pg_temp" for c in f.config if c.startswith("search_path")), f
    assert len(functions) > 50


@pytest.mark.parametrize("privilege", ["CREATE", "TEMPORARY"])
def test_public_has_nothing(logins, privilege):
    """A login that is in none of the groups: not one function, schema or table."""
    me = f"login_none_{uuid.uuid4().hex[:8]}"
    logins.admin(f"CREATE ROLE {me} LOGIN")
    try:
        with psycopg.connect(logins.url(me), autocommit=True) as connection:
            assert not connection.execute("SELECT has_database_privilege(current_database(), %s)", [privilege]).fetchone()[0]
            for statement in ["SELECT * FROM holdfast_v1.server_facts()", "SELECT * FROM holdfast.agent_runs",
                              "SELECT * FROM holdfast_v1.barrier()", "CREATE TABLE public.x ()", "CREATE TEMP TABLE x ()",
                              "SELECT holdfast.gate_key()"]:
                assert sqlstate(connection, statement) == "42501", statement
    finally:
        logins.drop(me)


def seize(connection, db):
    """A run held by another pod; then the calls of a stale worker. Returns the lease afterwards."""
    [made] = db.submit(task=f"t{uuid.uuid4().hex[:8]}")
    [got] = db.acquire("other", made.run_id)
    assert got.outcome == "acquired"
    before = db.one("SELECT owner, epoch, expires_at FROM holdfast.worker_leases WHERE run_id = %s", made.run_id)
    outcomes = [connection.execute(
        "SELECT outcome FROM holdfast_v1.renew(ARRAY[%s::uuid], ARRAY['stale'], ARRAY[%s::bigint], 60000)",
        [made.run_id, got.epoch]).fetchone()[0]]
    outcomes.append(connection.execute(
        "SELECT outcome FROM holdfast_v1.release(ARRAY[%s::uuid], ARRAY['stale'], ARRAY[%s::bigint], false)",
        [made.run_id, got.epoch]).fetchone()[0])
    after = db.one("SELECT owner, epoch, expires_at FROM holdfast.worker_leases WHERE run_id = %s", made.run_id)
    return outcomes, before, after


def test_shadowing(logins, login, db):
    """Even with the right to make temporary objects, tables, functions and operators of one's own are not found first."""
    me, connection = login("worker")
    logins.admin(f"GRANT TEMPORARY ON DATABASE {logins.name} TO {me}")
    for table in TABLES:
        connection.execute(f"CREATE TEMPORARY TABLE {table} (LIKE pg_catalog.pg_class)")
    connection.execute("CREATE TEMPORARY SEQUENCE outbox_seq")
    connection.execute("CREATE FUNCTION pg_temp.clock_timestamp() RETURNS timestamptz LANGUAGE sql "
                       "AS $$ SELECT 'infinity'::timestamptz $$")
    connection.execute("CREATE FUNCTION pg_temp.gate_reason() RETURNS text LANGUAGE sql AS $$ SELECT NULL::text $$")
    connection.execute("CREATE FUNCTION pg_temp.batch_check(text, integer[]) RETURNS integer LANGUAGE sql AS 'SELECT 1'")
    for path in ["pg_temp, pg_catalog", "pg_temp", "pg_temp, holdfast, pg_catalog", "holdfast_v1, pg_temp, pg_catalog", ""]:
        connection.execute(f"SET search_path = {path or chr(39) * 2}")
        outcomes, before, after = seize(connection, db)
        assert outcomes == ["lost", "not_holder"] and before == after, path
        facts = connection.execute("SELECT shards, gate_open FROM holdfast_v1.server_facts()").fetchone()
        assert facts == (8, True), path
    connection.execute("SELECT * FROM holdfast_v1.gate_close('stale', 'test')")
    assert connection.execute("SELECT outcome FROM holdfast_v1.claim_operations('x', gen_random_uuid(), 1, 1000, NULL, "
                              "NULL)").fetchone()[0] == "gate_closed"


@pytest.mark.parametrize("setting", [
    "lock_timeout = 0", "enable_indexscan = off", "enable_nestloop = off", "plan_cache_mode = force_custom_plan", "jit = on",
    "default_transaction_isolation = 'read committed'", "search_path = ''", 
    "transform_null_equals = on", "standard_conforming_strings = off", "DateStyle = 'German'", "TimeZone = 'Asia/Kabul'",
    "IntervalStyle = 'sql_standard'", "bytea_output = 'escape'", "array_nulls = off", "quote_all_identifiers = on"])
def test_settings_of_the_session_decide_nothing(login, db, setting):
    """A session's own settings do not change an outcome."""
    _, connection = login("worker")
    connection.execute(f"SET {setting}")
    outcomes, before, after = seize(connection, db)
    assert outcomes == ["lost", "not_holder"] and before == after


def test_isolation_is_read_committed(login):
    """No interface function that takes rows runs on an older snapshot."""
    _, connection = login("worker")
    calls = ["renew('{}', '{}', '{}', 1000)", "release('{}', '{}', '{}', false)", "expire_claims(1)",
             "claim_operations('x', gen_random_uuid(), 1, 1000, NULL, NULL)",
             "claim_unknown('x', gen_random_uuid(), 1, 1000, NULL, NULL)",
             "record_result('{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')",
             "record_not_sent('{}', '{}', '{}', '{}', '{}', '{}')", "record_unknown('{}', '{}', '{}', '{}', '{}', '{}')",
             "service_acquire('sweep', 'x', 1000)", "service_renew('sweep', 'x', 1, 1000)", "service_release('sweep', 'x', 1)",
             "events_read(0, 'x', 1, 0, 1)", "events_delete(0, 'x', 1, 1, '{}', '{}')",
             "relay_checked(0, 'x', 1, now())", "relay_share('x', 1000)",
             "claim('x', gen_random_uuid(), 1, 1000, NULL)", "acquire('x', gen_random_uuid(), '{}', 1000, NULL)",
             "register('{}', '{}', '{}', '{}', 'p')", "gate_close('x', 'y')"]
    for level in ["REPEATABLE READ", "SERIALIZABLE"]:
        connection.execute(f"SET default_transaction_isolation = '{level.lower()}'")
        for call in calls:
            assert sqlstate(connection, f"SELECT * FROM holdfast_v1.{call}") == "25001", (level, call)


def test_facts_of_a_login(login):
    """server_facts tells a login role what it is, and what it lacks."""
    me, connection = login("operator")
    connection.execute("SET statement_timeout = '7s'")
    facts = connection.execute("SELECT login, login_superuser, login_can_make_temp, login_worker, login_operator, "
                               "login_viewer, login_connection_limit, statement_timeout_ms FROM holdfast_v1.server_facts()")
    assert facts.fetchone() == (me, False, False, False, True, False, 20, 7000)
