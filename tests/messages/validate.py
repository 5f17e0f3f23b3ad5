#!/usr/bin/env python3
"""Holds the schema files of schemas/json against what the code really says.

  validate.py tasks      tests/messages/tasks.txt: the schema of task records and the decoder give the same verdict
  validate.py encoded    standard input: lines "<schema file without .schema.json>\\t<message>" that encoders wrote;
                         each must be valid, and must stop being valid without any required member
  validate.py files      every file is valid JSON Schema 2020-12, and asyncapi.yaml names every one of them

Exit 0: all hold. Started by tests/unit/schemas_shapes_test.c; works alone, too.
"""
import copy
import json
import pathlib
import re
import sys

import jsonschema
from referencing import Registry, Resource

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "schemas" / "json"
SCHEMAS = {p.name.removesuffix(".schema.json"): json.loads(p.read_text()) for p in sorted(FOLDER.glob("*.schema.json"))}
# The files name each other by file name, as every tool resolves them; here they get some common base.
BASE = "https://holdfast.invalid/"
REGISTRY = Registry().with_resources((f"{BASE}{n}.schema.json", Resource.from_contents(s)) for n, s in SCHEMAS.items())
problems = []


def validator(name):
    return jsonschema.Draft202012Validator({"$ref": f"{BASE}{name}.schema.json"}, registry=REGISTRY,
                                           format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)


def tasks():
    check = validator("task")
    compared = 0
    for number, line in enumerate((ROOT / "tests/messages/tasks.txt").read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        verdict, _, record = line.split(" ", 2)
        wanted = verdict == "ok" or verdict.endswith("~")
        errors = [e.message for e in check.iter_errors(json.loads(record))]
        if wanted == bool(errors):
            problems.append(f"tasks.txt:{number}: decoder {verdict}, schema {errors or 'accepts'}: {record}")
        compared += 1
    return compared


def required_members(message, schema_name):
    """The top-level members without which the schema refuses the message."""
    check = validator(schema_name)
    for key in list(message):
        less = copy.deepcopy(message)
        del less[key]
        if not check.is_valid(less):
            yield key


def encoded():
    seen = {}
    for line in sys.stdin:
        name, _, text = line.rstrip("\n").partition("\t")
        message = json.loads(text)
        for error in validator(name).iter_errors(message):
            problems.append(f"{name}: {error.json_path}: {error.message}\n  {text}")
        seen.setdefault(name, set()).update(required_members(message, name))
        stranger = dict(message, stranger=1)
        open_ended = name.startswith("dead-letter")  # the record's own headers stand there, too
        if validator(name).is_valid(stranger) != open_ended:
            problems.append(f"{name}: a member that nobody knows is {'refused' if open_ended else 'accepted'}")
    unseen = set(SCHEMAS) - set(seen) - {"common", "task"}
    if unseen:
        problems.append(f"no encoded message was offered for {sorted(unseen)}")
    for name in seen:
        needed = set(SCHEMAS[name].get("required", []))
        if not seen[name] >= needed:
            problems.append(f"{name}: stays valid without {sorted(needed - seen[name])}")
    return len(seen)


def files():
    for name, schema in SCHEMAS.items():
        jsonschema.Draft202012Validator.check_schema(schema)
        if schema["$schema"] != "https://json-schema.org/draft/2020-12/schema":
            problems.append(f"{name}: not 2020-12")
        # The version of a message; of a result it is what the header ce_dataschema says.
        urn = "urn:holdfast:schema:" + (name.replace("result.", "result:", 1) if name != "result.headers" else "result-headers")
        if schema["$comment"] != urn + ":1":
            problems.append(f"{name}: $comment is not {urn}:1")
    asyncapi = (ROOT / "schemas/asyncapi.yaml").read_text()
    named = set(re.findall(r"\./json/([A-Za-z0-9_.-]+)\.schema\.json", asyncapi))
    for name in named - set(SCHEMAS):
        problems.append(f"asyncapi.yaml names {name}, which is no file")
    elsewhere = {n for n in SCHEMAS if n.startswith(("task.", "exec."))}  # inside task; between a pod and its children
    for name in set(SCHEMAS) - named - elsewhere - {"common"}:
        problems.append(f"asyncapi.yaml does not name {name}")
    return len(SCHEMAS)


def main():
    what = sys.argv[1] if len(sys.argv) == 2 else ""
    if what not in ("tasks", "encoded", "files"):
        sys.exit(__doc__)
    count = {"tasks": tasks, "encoded": encoded, "files": files}[what]()
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems or count == 0:
        sys.exit(1)


main()
