"""The groups of a regular expression (RE2), as Arrow reads them: each that captures has a name."""

from __future__ import annotations

import functools
import re

from tidemill.core.errors import UserError

_TOKEN = re.compile(
    r"\\Q.*?(?:\\E|\Z)"  # quoted text
    r"|\\."  # an escaped character
    r"|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]"  # a class of characters
    r"|\(\?P?<(?P<name>[^>]*)>"  # a named group
    r"|\(\?"  # flags, or a group that does not capture
    r"|(?P<plain>\()",
    re.DOTALL,
)
OURS = "g"
"""The name of the group that is asked for; the others do not capture."""


@functools.lru_cache(maxsize=256)
def extracting(pattern: str, group: int | str | None) -> str:
    """Return a pattern in which the group that is asked for is the only one that captures.

    Without a group it is the first one, or all that matches where there is none.

    >>> extracting(r"(\\w+)-(\\d+)", 2)
    '(?:\\\\w+)-(?P<g>\\\\d+)'
    >>> extracting("a+", None)
    '(?P<g>a+)'
    """
    names: list[str | None] = []
    for found in _TOKEN.finditer(pattern):
        if found["plain"] or found["name"] is not None:
            names.append(found["name"])
    wanted = _number(names, group)
    if wanted == 0:
        inside = _written(pattern, -1)
        return f"(?P<{OURS}>{inside})"
    return _written(pattern, wanted)


def _number(names: list[str | None], group: int | str | None) -> int:
    """The number of a group; 0 is all that matches."""
    if group is None:
        return min(1, len(names))
    known = [*range(len(names) + 1), *(n for n in names if n)]
    if isinstance(group, bool) or group not in known:
        raise UserError(
            "extract", expected=f"a group of the pattern, one of {known}", got=repr(group),
            hint="0 is all that matches, 1 the first group in parentheses",
        )  # fmt: skip
    return group if isinstance(group, int) else names.index(group) + 1


def _written(pattern: str, wanted: int) -> str:
    count = 0

    def write(found: re.Match[str]) -> str:
        nonlocal count
        if not found["plain"] and found["name"] is None:
            return found.group()
        count += 1
        return f"(?P<{OURS}>" if count == wanted else "(?:"

    return _TOKEN.sub(write, pattern)
