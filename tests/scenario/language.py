"""The language of the scenes: words and braces, one statement a line.

    # a comment
    pod p1 start
    submit {"task_id": "t1", "handler": "slow",
            "input": {}}
    expect run $RUN status == succeeded epoch == 2 within 20s

A block in braces may span lines and is kept as it is, nested braces and quotes included. "…" is one word.
$NAME (upper case only, so that a plan's "$ref" is left alone) is replaced by a variable of the scene.
"""
import re
from dataclasses import dataclass


class SceneError(Exception):
    """The scene itself is wrong: cannot be read, or says something that no verb understands."""


@dataclass
class Word:
    text: str
    block: bool = False   # came in braces

    def __eq__(self, other):
        return self.text == (other.text if isinstance(other, Word) else other)


@dataclass
class Statement:
    path: str
    line: int
    words: list

    def __str__(self):
        return " ".join("{%s}" % w.text if w.block else w.text for w in self.words)


def parse(text, path="<scene>"):
    statements, at, line = [], 0, 1
    while at < len(text):
        words, start = [], line
        while at < len(text) and text[at] != "\n":
            c = text[at]
            if c in " \t\r":
                at += 1
            elif c == "#":
                while at < len(text) and text[at] != "\n":
                    at += 1
            elif c == "{":
                end = _block_end(text, at, path, line)
                words.append(Word(text[at + 1:end], True))
                line += text.count("\n", at, end)
                at = end + 1
            elif c == '"':
                end = text.find('"', at + 1)
                if end < 0 or "\n" in text[at:end]:
                    raise SceneError(f"{path}:{line}: a quote is not closed")
                words.append(Word(text[at + 1:end]))
                at = end + 1
            else:
                end = at
                while end < len(text) and text[end] not in " \t\r\n":
                    if text[end] == "{" and not _label_block(text, at, end):
                        break
                    if text[end] == "{":
                        end = text.index("}", end)
                    end += 1
                words.append(Word(text[at:end]))
                at = end
        at += 1
        if words:
            statements.append(Statement(path, start, words))
        line += 1
    return statements


def _label_block(text, start, brace):
    """name{label="value"} is one word: the way metrics are written."""
    close = text.find("}", brace)
    return brace > start and close > 0 and re.fullmatch(r'\{\w+="[^"\n]*"(,\w+="[^"\n]*")*\}', text[brace:close + 1])


def _block_end(text, at, path, line):
    """The index of the brace that closes the one at `at`; braces inside quotes of either kind do not count."""
    depth, quote = 0, None
    i = at
    while i < len(text):
        c = text[i]
        if quote:
            if c == "\\" and quote == '"':
                i += 1
            elif c == quote:
                quote = None
        elif c in "\"'":
            quote = c
        elif c == "{":
            depth += 1
        elif c == "}":
            depth -= 1
            if depth == 0:
                return i
        i += 1
    raise SceneError(f"{path}:{line}: a brace is not closed")


def substitute(word, variables, where):
    def one(match):
        name = match.group(1)
        if name not in variables:
            raise SceneError(f"{where.path}:{where.line}: nothing has set ${name} before")
        return str(variables[name])
    return Word(re.sub(r"\$([A-Z][A-Z0-9_]*)", one, word.text), word.block)


def seconds(word):
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s)", word)
    if not match:
        raise SceneError(f"\"{word}\" is no time: say 500ms or 10s")
    return float(match.group(1)) / (1000 if match.group(2) == "ms" else 1)


COMPARE = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
    ">=": lambda a, b: float(a) >= float(b), "<=": lambda a, b: float(a) <= float(b),
    ">": lambda a, b: float(a) > float(b), "<": lambda a, b: float(a) < float(b),
}


def holds(actual, operator, wanted):
    """Compares as text; orders as numbers. None (nothing there) only differs."""
    if actual is None:
        return operator == "!="
    if operator not in COMPARE:
        raise SceneError(f"\"{operator}\" is no comparison: use one of {' '.join(COMPARE)}")
    try:
        return COMPARE[operator](str(actual), str(wanted))
    except ValueError:
        return False


def matches(value, pattern):
    """Whether the JSON value contains the pattern: objects by member, everything else by equality."""
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(k in value and matches(value[k], v) for k, v in pattern.items())
    return value == pattern
