#!/usr/bin/env python3
"""The house rules that a compiler does not know. Prints every offending line and fails if there is one.

    tests/includes.py              check the tree
    tests/includes.py --self-test  check that each rule finds its offence

Rules: the include table (cmake/includes.txt); files of at most 600 lines; no file named util, misc, common or helpers;
no unbounded string functions; no SQL in C outside of schemas; every SQL function in functions/ORDER, once; no option
that nothing reads.
"""
import fnmatch
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LONGEST_FILE = 600
VAGUE = {"util", "utils", "misc", "common", "helper", "helpers", "stuff", "manager", "mgr"}
SOURCES = {".c", ".h", ".py", ".sql", ".cmake", ".sh"}
SKIPPED = {".git", ".deps", "build", "node_modules", "__pycache__", ".venv"}
BANNED = re.compile(r"\b(sprintf|vsprintf|strcpy|strcat|strncat|atoi|atol|atof|gets|strtok|alloca)\s*\(")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
SQL = re.compile(
    r"\bselect\b.+\bfrom\b|\binsert\s+into\b|\bupdate\s+\S+\s+set\b|\bdelete\s+from\b|\bdrop\s+(table|schema|role)\b|"
    r"\b(create|alter)\s+(table|schema|function|role|index)\b|\bgrant\s+\w+\s+on\b", re.I)
SQL_START = re.compile(r"^\s*(select\s|insert\s|update\s|delete\s|begin\b|commit\b|rollback\b|drop\s|create\s|alter\s|grant\s)", re.I)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


class Table:
    def __init__(self, text):
        self.rooms, self.third, self.never = {}, {}, {}
        self.libc, self.free, self.sql = [], set(), set()
        for line in text.splitlines():
            line = line.split("#")[0].strip()
            if not line:
                continue
            head, _, rest = line.partition(":")
            if head == "libc":
                self.libc += rest.split()
            elif head == "free":
                self.free |= set(rest.split())
            elif head == "sql":
                self.sql |= set(rest.split())
            elif head.startswith("never "):
                self.never[head.split()[1]] = rest.split()
            else:
                rooms, _, third = rest.partition("|")
                self.rooms[head] = set(rooms.split()) | {head}
                for pattern in third.split():
                    if pattern in self.third:
                        raise SystemExit(f"includes.txt: {pattern} belongs to two rooms")
                    self.third[pattern] = head

    def complaint(self, room, header, quoted):
        """Why a file of this room may not include that header; None when it may."""
        first = header.split("/")[0]
        if first in self.rooms and "/" in header:
            if first not in self.rooms[room]:
                return f"{room} may not include {first}"
            if header.endswith("_int.h") and first != room:
                return f"{header} is private to {first}"
            if header in self.never.get(room, ()):
                return f"{room} may not include {header}"
            return None
        for pattern, owner in self.third.items():
            if fnmatch.fnmatch(header, pattern):
                return None if owner == room else f"<{header}> belongs to the room {owner}"
        if not quoted and any(fnmatch.fnmatch(header, pattern) for pattern in self.libc):
            return None
        return f"{header} is not in cmake/includes.txt" + (" (write room/header.h)" if quoted else "")


def files(root):
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if not SKIPPED & set(relative.parts) and path.is_file() and (path.suffix in SOURCES or path.name == "CMakeLists.txt"):
            yield path, relative


def without_comments(text):
    return COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def check_c(table, relative, text):
    room = relative.parts[0]
    code = without_comments(text).splitlines()
    for number, line in enumerate(code, 1):
        found = INCLUDE.match(line)
        if found and room in table.rooms:
            complaint = table.complaint(room, found.group(2), found.group(1) == '"')
            if complaint:
                yield number, complaint
        found = BANNED.search(STRING.sub('""', line))
        if found and room in table.rooms:
            yield number, f"{found.group(1)} has no bound or no error"
        if room in table.rooms and not {room, str(relative)} & table.sql:
            for literal in STRING.findall(line):
                if SQL.search(literal) and SQL_START.search(literal) and "…" not in literal: # … is advice for people
                    yield number, "SQL outside of schemas"


def check_order(root):
    folder = root / "schemas" / "sql" / "functions"
    if not (folder / "ORDER").exists():
        return
    named = [line.split("#")[0].strip() for line in (folder / "ORDER").read_text().splitlines()]
    named = [name for name in named if name]
    for name in sorted({n for n in named if named.count(n) > 1}):
        yield f"schemas/sql/functions/ORDER: {name} twice"
    present = {p.name for p in folder.glob("*.sql")}
    for name in sorted(present - set(named)):
        yield f"schemas/sql/functions/{name}: not in ORDER, so no migration runs it"
    for name in sorted(set(named) - present):
        yield f"schemas/sql/functions/ORDER: {name} is missing"


def check_options(root, table):
    """An option that no code reads would be ignored in silence."""
    code = "".join(without_comments(path.read_text(encoding="utf-8")) for path, relative in files(root)
                   if path.suffix == ".c" and relative.parts[0] in table.rooms and str(relative) != "config/rules.c")
    for name in ("options.tbl.h", "named.tbl.h"):
        path = root / "config" / name
        rows = re.findall(r"^(?:OPTION|NAMED)\((\w+), (\w+)", path.read_text(), re.M) if path.exists() else []
        for section, option in rows:
            if not re.search(rf"(\.|->){option}\b", code):
                yield f"config/{name}: nothing reads {section}.{option}"


def check(root, table):
    for path, relative in files(root):
        text = path.read_text(encoding="utf-8")
        lines = text.count("\n")
        if lines > LONGEST_FILE:
            yield f"{relative}: {lines} lines, more than {LONGEST_FILE}"
        if VAGUE & set(re.split(r"[_.\-]", path.stem.lower())):
            yield f"{relative}: the name says nothing"
        if path.suffix in (".c", ".h"):
            for number, complaint in check_c(table, relative, text):
                yield f"{relative}:{number}: {complaint}: {text.splitlines()[number - 1].strip()}"
    yield from check_order(root)
    yield from check_options(root, table)


OFFENCES = {
    "pool/a.c": ('#include "outbox/outbox.h"\n', "pool may not include outbox"),
    "pool/b.c": ("#include <libpq-fe.h>\n", "<libpq-fe.h> belongs to the room schemas"),
    "pool/c.c": ('#include "fence/fence_int.h"\n', "fence/fence_int.h is private to fence"),
    "pool/d.c": ('#include "schemas/db.h"\n', "pool may not include schemas/db.h"),
    "base/e.c": ("#include <jansson.h>\n", "jansson.h is not in cmake/includes.txt"),
    "base/f.c": ('#include "text.h"\n', "text.h is not in cmake/includes.txt (write room/header.h)"),
    "net/g.c": ('void f(char *s) { strcpy(s, "x"); }\n', "strcpy has no bound or no error"),
    "fence/h.c": ('const char *q = "select n from t";\n', "SQL outside of schemas"),
    "cli/i.c": ('const char *q = "UPDATE x SET y = 1";\n', "SQL outside of schemas"),
    "cli/string_utils.c": ("\n", "the name says nothing"),
    "cli/long.c": ("\n" * 601, "601 lines, more than 600"),
    "schemas/sql/functions/lost.sql": ("select 1;\n", "not in ORDER"),
    "config/options.tbl.h": ("OPTION(pool, used, INT)\nOPTION(pool, idle, INT)\n", "nothing reads pool.idle"),
}
INNOCENT = {
    "pool/good.c": '#include <string.h>\n#include <sys/types.h>\n#include "fence/fence.h"\n#include "pool/pool_int.h"\n'
                   '/* strcpy( and "select a from b" */ int f(char *s) { return snprintf(s, 3, "gets(x)"); }\n'
                   'const char *t = "cannot update the state; select another run from the list";\n',
    "outbox/good.c": "int f(const struct config *c) { return c->pool.used; }\n",
    "schemas/good.c": '#include <libpq-fe.h>\nconst char *q = "select n from t";\n',
    "schemas/sql/functions/ORDER": "good.sql\n",
    "schemas/sql/functions/good.sql": "select 1;\n",
}


def self_test(table):
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for path, text in list(INNOCENT.items()) + [(path, text) for path, (text, _) in OFFENCES.items()]:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        found = list(check(root, table))
    wrong = [f"not found: {path}: {words}" for path, (_, words) in OFFENCES.items()
             if not any(line.startswith(path) and words in line for line in found)]
    wrong += [f"found without reason: {line}" for line in found if line.split(":")[0] not in OFFENCES]
    return wrong


def main():
    table = Table((ROOT / "cmake" / "includes.txt").read_text())
    wrong = self_test(table)
    if "--self-test" not in sys.argv[1:]:
        wrong += check(ROOT, table)
    print("\n".join(wrong) if wrong else "the house is in order")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
