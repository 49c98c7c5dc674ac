"""One wheel into another: what both have seen, nothing twice."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from tidemill.core.errors import UserError
from tidemill.local.wheel import Wheel
from tidemill.local.wheel_kind import kind_of
from tidemill.local.wheel_windows import ClosingWindows


def merge(wheel: Wheel, other: Any) -> bool:
    """See `Wheel.merge`."""
    if not isinstance(other, Wheel) or not _same_kind(wheel, other):
        raise UserError(
            "wheel merge", expected=f"a wheel such as {wheel!r}", got=repr(other),
            hint="aggregates, columns, keys, granularities and retention must be equal",
        )  # fmt: skip
    for one in (wheel, other):
        one._require_sound("wheel merge")
        one._require_verified()
    if wheel._windows or other._windows:
        raise UserError("wheel merge", expected="wheels without windows", got="windows")
    if wheel._publisher is not None:
        raise UserError("wheel merge", expected="a wheel that is not shared", got="one that is")
    theirs = {other._name: other.id, **other._merged}
    if not _is_new(wheel, other, theirs):
        return False
    incoming = other._copy()
    now = max(wheel._store.now, incoming._store.now) * wheel._grain
    wheel.advance_to(now)
    incoming.advance_to(now)
    keys, count = wheel._keys.copy(), 1
    names = np.zeros(incoming._store.keys, dtype=np.int64)
    if wheel._keyed:
        names = keys.encode(incoming._keys.decode(np.arange(incoming._store.keys)))
        count = keys.count
    both = wheel._merged_store(incoming, names, count)
    merged = copy.copy(wheel)
    merged._keys, merged._store = keys, both
    merged._windows = ClosingWindows(wheel._plan, both, wheel._domain, keys, wheel._look_at)
    merged._merged = {**wheel._merged, **theirs}
    merged._inserted += incoming._inserted
    merged._left_out, merged._late = dict(wheel._left_out), list(wheel._late)
    for name, count in incoming._left_out.items():
        merged._left_out[name] = merged._left_out.get(name, 0) + count
    for rows in incoming._late:
        merged._keep_late(rows)
    merged._early = wheel._early.copy()
    merged._early.add_all(incoming._early)
    wheel.__dict__.update(merged.__dict__)  # at once: Ctrl-C comes before it, or after
    wheel._bring_in()
    return True


def _is_new(wheel: Wheel, other: Wheel, theirs: dict[str, str]) -> bool:
    """Whether nothing of another wheel is in this one; False if all of it is."""
    ours = {wheel._name: wheel.id, **wheel._merged}
    if all(ours.get(name) == at for name, at in theirs.items()):
        return False
    if clash := sorted(set(theirs) & set(ours)):
        raise UserError(
            "wheel merge", expected="a wheel of which nothing was merged before",
            got=f"{other!r}, of which {', '.join(clash)} was", hint="merge each part once",
        )  # fmt: skip
    return True


def _same_kind(wheel: Wheel, other: Wheel) -> bool:
    mine, theirs = wheel._store, other._store
    return (
        kind_of(wheel._plan) == kind_of(other._plan) and mine.rings == theirs.rings
        and mine.prefix == theirs.prefix and len(mine.ahead) == len(theirs.ahead)
    )  # fmt: skip
