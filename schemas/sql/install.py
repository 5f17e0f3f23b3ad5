#!/usr/bin/env python3
"""Prints the whole script that a fresh installation runs, the same text as `holdfast migrate --print`.

Order: roles.sql, tables/V*.sql, transitions.sql, functions/ in the order of functions/ORDER, views/*.sql in order of
name, grants.sql, the control row.

    schemas/sql/install.py --schema holdfast --role holdfast_ --shards 8 | psql -v ON_ERROR_STOP=1 --single-transaction
"""
import argparse
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


def version():
    return max(int(re.match(r"V(\d+)__", p.name).group(1)) for p in (HERE / "tables").glob("V[0-9]*__*.sql"))


def control_row(shards, mode):
    return f"""-- The control row: made once, by the first migration.
INSERT INTO @schema@.control (system_identifier, timeline, schema_version, shards, failover_mode)
SELECT s.system_identifier, @schema@.server_timeline(), {version()}, {shards}, '{mode}' FROM pg_control_system() s
ON CONFLICT DO NOTHING;
INSERT INTO @schema@.relay_positions (shard)
SELECT g FROM @schema@.control c, generate_series(0, c.shards - 1) g ON CONFLICT DO NOTHING;
"""


def script(schema="holdfast", role="holdfast_", shards=8, mode="async", only_existing=False):
    parts = []
    for path in files():
        if only_existing and not path.exists():
            continue
        parts.append(f"-- {path.relative_to(HERE)}\n" + path.read_text().rstrip("\n") + "\n")
    parts.append(control_row(shards, mode))
    text = "\n".join(parts)
    for name, value in (("@schema@", schema), ("@iface@", schema + "_v1"), ("@role@", role)):
        text = text.replace(name, value)
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schema", default="holdfast")
    parser.add_argument("--role", default="holdfast_")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--mode", choices=("async", "strict"), default="async")
    args = parser.parse_args()
    for value in (args.schema, args.role):
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,47}", value):
            parser.error(f"not a plain lower-case name: {value!r}")
    print(script(args.schema, args.role, args.shards, args.mode), end="")


if __name__ == "__main__":
    main()
