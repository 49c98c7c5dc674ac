"""One wheel into another: what both have seen, nothing twice; or, where that fails, nothing at all."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidemill.core.errors import UserError
from tidemill.wheels.spec import kind_of
from tidemill.wheels.wheel import Wheel
from tidemill.wheels.windows import ClosingWindows


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
    ours, incoming = wheel._copy(), other._copy()  # whatever fails, fails there
    now = max(wheel._store.now, other._store.now) * wheel._grain
    for one in (ours, incoming):
        one.advance_to(now)
    keys, count = ours._keys, 1
    names = np.zeros(incoming._store.keys, dtype=np.int64)
    if ours._keyed:
        names = keys.encode(incoming._keys.decode(np.arange(incoming._store.keys)))
        count = keys.count
    ours._store = both = ours._merged_store(incoming, names, count)
    ours._windows = ClosingWindows(wheel._plan, both, wheel._domain, keys, wheel._look_at)
    ours._merged |= theirs
    ours._inserted += incoming._inserted
    for name, left_out in incoming._left_out.items():
        ours._left_out[name] = ours._left_out.get(name, 0) + left_out
    for rows in incoming._late:
        ours._keep_late(rows)
    ours._early.add_all(incoming._early)
    ours._bring_in()
    ours._lock = wheel._lock  # somebody may have it
    wheel.__dict__.update(ours.__dict__)  # at once: Ctrl-C comes before it, or after
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
