"""Say how two plans differ, step by step."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from tidemill.core.errors import UserError

_WORDS = re.compile(r"\w+\([^()]*\)|[^\s,\[\]()]+|[\[\](),]")


def require_same_plan(saved: str, now: str) -> None:
    """Raise an error that says what differs, if a state was saved for another plan than that of now."""
    if saved != now:
        raise UserError(
            "restore", expected=f"a snapshot of\n{now}\n",
            got=f"one of a plan in which\n{differences(saved, now)}",
            hint="restore it with the query that it was saved for, or start again: query.live()",
        )  # fmt: skip


def differences(before: str, now: str) -> str:
    """Return how a plan, as text, differs from another: a line for each step that changed, came or went.

    >>> print(differences("aggregate n=count() over tumbling(10) panes=10\\n  source s",
    ...                   "aggregate n=count() over tumbling(5) panes=5\\n  where (col.x > 1)\\n  source s"))
    aggregate: 'tumbling(10) panes=10' is now 'tumbling(5) panes=5'
    where: is new: '(col.x > 1)'
    """
    old, new = ([line.strip() for line in text.splitlines()] for text in (before, now))
    found: list[str] = []
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        pairs, gone, come = _paired(old[a:b], new[c:d])
        found += [f"{_step(was)}: {_change(was, line)}" for was, line in pairs]
        found += [f"{_step(line)}: is gone: {_rest(line)!r}" for line in gone]
        found += [f"{_step(line)}: is new: {_rest(line)!r}" for line in come]
    if not found:  # only the order, or the depth, of steps
        found = [f"steps are arranged otherwise:\n{before}"]
    return "\n".join(found)


def _paired(old: list[str], new: list[str]) -> tuple[list[tuple[str, str]], list[str], list[str]]:
    """Pair steps of the same kind, in order; return also what is left of both."""
    pairs, left = [], list(new)
    gone = []
    for line in old:
        same = next((other for other in left if _step(other) == _step(line)), None)
        if same is None:
            gone.append(line)
        else:
            pairs.append((line, same))
            left.remove(same)
    return pairs, gone, left


def _step(line: str) -> str:
    """The kind of a step; a source with its name."""
    words = line.split()
    return " ".join(words[: 2 if words[:1] == ["source"] else 1]) if words else "step"


def _rest(line: str) -> str:
    return line[len(_step(line)) :].strip()


def _change(before: str, now: str) -> str:
    old, new = (list(_WORDS.finditer(text)) for text in (before, now))
    words = SequenceMatcher(None, [w[0] for w in old], [w[0] for w in new], autojunk=False)
    said = []
    for kind, a, b, c, d in words.get_opcodes():
        was, became = _between(before, old[a:b]), _between(now, new[c:d])
        if kind == "insert":
            said.append(f"{became!r} is new")
        elif kind == "delete":
            said.append(f"{was!r} is gone")
        elif kind == "replace":
            said.append(f"{was!r} is now {became!r}")
    return ", ".join(said) or f"{before!r} is now {now!r}"


def _between(text: str, words: list[re.Match[str]]) -> str:
    return text[words[0].start() : words[-1].end()] if words else ""
