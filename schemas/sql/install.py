#!/usr/bin/env python3
"""Prints the whole script that a fresh installation runs, the same text as `holdfast migrate --print`.

Order: roles.sql, the table of versions, tables/V*.sql, transitions.sql, functions/ in the order of functions/ORDER, views/*.sql in order of
name, grants.sql, the control row.

    schemas/sql/install.py --schema holdfast --role holdfast_ --shards 8 | psql -v ON_ERROR_STOP=1 --single-transaction
"""
import argparse
import hashlib
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent


def files():
    """Every file of a fresh installation, in order; a listed file that is missing is an error."""
    yield HERE / "roles.sql"
    yield from sorted((HERE / "tables").glob("V[0-9]*__*.sql"))
    yield HERE / "transitions.sql"
    for line in (HERE / "functions" / "ORDER").read_text().splitlines():
        name = line.split("#")[0].strip()
        if name:
            yield HERE / "functions" / name
    yield from sorted((HERE / "views").glob("*.sql"))
    yield HERE / "grants.sql"


def number(path):
    """Of a table file, else 0."""
    match = re.match(r"V(\d+)__", path.name)
    return int(match.group(1)) if match and path.parent.name == "tables" else 0


def sha256(data):
    return hashlib.sha256(data).hexdigest()


VERSIONS = """-- Which table files ran here, and with what content.
CREATE TABLE IF NOT EXISTS @schema@.schema_version (
    version    integer     PRIMARY KEY,
    name       text        NOT NULL,
    digest     text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""

CONTROL = """-- The control row: made once, by the first migration.
INSERT INTO @schema@.control (system_identifier, timeline, schema_version, shards, failover_mode)
SELECT s.system_identifier, @schema@.server_timeline(), {version}, {shards}, '{mode}' FROM pg_control_system() s
ON CONFLICT DO NOTHING;
INSERT INTO @schema@.relay_positions (shard)
SELECT g FROM @schema@.control c, generate_series(0, c.shards - 1) g ON CONFLICT DO NOTHING;
-- As configured now: whether claims wait for the relay's comparison after a start of the server.
UPDATE @schema@.control SET claims_wait_for_relay = {wait} WHERE claims_wait_for_relay <> {wait};
-- What is installed, for everybody to read.
COMMENT ON SCHEMA @iface@ IS 'holdfast tables {version} sql {digest}';
"""


def script(schema="holdfast", role="holdfast_", shards=8, mode="async", wait=False):
    parts, digests, version = [], "", 0
    for path in files():
        name, data = path.relative_to(HERE).as_posix(), path.read_bytes()
        digests += f"{name} {sha256(data)}\n"
        text = f"-- {name}\n" + data.decode().rstrip("\n") + "\n"
        if number(path):
            version = max(version, number(path))
            text += (f"INSERT INTO @schema@.schema_version (version, name, digest) VALUES "
                     f"({number(path)}, '{name}', '{sha256(data)}');\n")
        parts.append(text)
        if name == "roles.sql":
            parts.append(VERSIONS)
    parts.append(CONTROL.format(version=version, shards=shards, mode=mode, wait=str(wait).lower(),
                                digest=sha256(digests.encode())))
    text = "\n".join(parts)
    for place, value in (("@schema@", schema), ("@iface@", schema + "_v1"), ("@role@", role)):
        text = text.replace(place, value)
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schema", default="holdfast")
    parser.add_argument("--role", default="holdfast_")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--mode", choices=("async", "strict"), default="async")
    parser.add_argument("--claims-wait-for-relay", action="store_true")
    args = parser.parse_args()
    for value in (args.schema, args.role):
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,47}", value):
            parser.error(f"not a plain lower-case name: {value!r}")
    print(script(args.schema, args.role, args.shards, args.mode, args.claims_wait_for_relay), end="")


if __name__ == "__main__":
    main()
