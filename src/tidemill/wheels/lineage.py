"""The identity of a wheel's states, so that no row is merged twice.

A wheel has one writer, so its states are ordered. A state is identified by the wheel's `name`, its `line`
of saves that were opened and continued, and its version. Two continuations of one save are two lines.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field

Version = tuple[int, int, int]
"""Rows received, the first open slot, wheels merged. None of them ever decreases."""
_BRANCH = re.compile(r"(\d+)\.(-?\d+)\.(\d+)~[0-9a-f]+")


@dataclass
class Lineage:
    """The name of a wheel, its line, and the wheels that were merged into it."""

    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    line: str = ""
    """A branch `/<version of the save>~<number>` for each save that was opened and continued."""
    merged: dict[str, str] = field(default_factory=dict)
    """The ids of the wheels that were merged into it, by name."""
    opened: Version | None = None
    """Its version when it was opened, as long as it has not changed."""

    def id(self, version: Version) -> str:
        """The id of this state."""
        self.start_branch(version)
        return f"{self.name}{self.line}@{_shown(version)}"

    def start_branch(self, version: Version) -> None:
        """Start a branch if this is the first change after opening a save."""
        if self.opened is not None and self.opened != version:
            self.line += f"/{_shown(self.opened)}~{uuid.uuid4().hex[:8]}"
            self.opened = None

    def copy(self) -> Lineage:
        return Lineage(self.name, self.line, dict(self.merged), self.opened)


def is_older(one: str, other: str) -> bool | None:
    """Whether one state precedes or equals another; None if they are not ordered.

    >>> is_older("w@3.10.0", "w@5.12.0"), is_older("w@5.12.0", "w@3.10.0")
    (True, False)
    >>> is_older("w@3.10.0", "w/4.11.0~ab@7.12.0"), is_older("w@5.11.0", "w/4.11.0~ab@7.12.0")
    (True, None)
    """
    (path, version), (other_path, other_version) = _parsed(one), _parsed(other)
    if path == other_path:
        if all(a <= b for a, b in zip(version, other_version)):
            return True
        return False if all(a >= b for a, b in zip(version, other_version)) else None
    for long, short, last, answer in (
        (other_path, path, version, True), (path, other_path, other_version, False)
    ):  # fmt: skip
        if long.startswith(f"{short}/"):
            branch = _BRANCH.match(long[len(short) + 1 :])
            before = branch is not None and all(a <= int(b) for a, b in zip(last, branch.groups()))
            return answer if before else None
    return None


def _parsed(state: str) -> tuple[str, tuple[int, ...]]:
    path, _, version = state.rpartition("@")
    return path, tuple(int(n) for n in version.split("."))


def _shown(version: Version) -> str:
    return ".".join(map(str, version))
