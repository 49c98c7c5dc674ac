"""Merge two wheels, without counting a row twice."""

from __future__ import annotations

import numpy as np

from tidemill.codegen.kernel_errors import raise_for
from tidemill.core.errors import UserError
from tidemill.wheels.memory.merge_stores import merged as merged_stores
from tidemill.wheels.objects.store import ObjectStore
from tidemill.wheels.spec import FIRST_TIME, HIDDEN, WheelSpec, kind_of
from tidemill.wheels.state import WheelState

STEP = "wheel merge"


def merged(state: WheelState, other: WheelState) -> WheelState | None:
    """Return a wheel with the rows of both; None if all rows of `other` are in `state` already.

    Both inputs stay unchanged, also on errors.
    """
    if state.windows.specs != other.windows.specs:
        raise UserError(
            STEP, expected=f"the same windows, {_windows_of(state)}", got=_windows_of(other),
            hint="windows are given when a wheel is made, or before its first row",
        )  # fmt: skip
    require_same_kind(state.spec, other.spec, STEP)
    for one in (state, other):
        one.require_sound(STEP)
        one.require_verified()
    theirs = {other.lineage.name: other.id, **other.lineage.merged}
    if not _is_new(state, theirs):
        return None
    if state.windows and state.store.now != other.store.now:
        at = [one.instant(one.store.now * one.grain) for one in (state, other)]
        raise UserError(
            STEP, expected="wheels with windows at the same watermark", got=f"{at[0]} and {at[1]}",
            hint="advance the one that is behind, which returns its windows that close",
        )  # fmt: skip
    ours, incoming = state.copy(), other.copy()
    now = max(ours.store.now, incoming.store.now)
    for one in (ours, incoming):
        one.advance(now)
    own, count = np.arange(ours.store.keys), 1
    names = np.zeros(incoming.store.keys, dtype=np.int64)
    if ours.keyed:
        names = ours.keys.encode(incoming.keys.decode(np.arange(incoming.store.keys)))
        count = ours.keys.count
    windows = ours.windows
    if isinstance(ours.store, ObjectStore):
        assert isinstance(incoming.store, ObjectStore)
        ours.store = ours.store.merged(incoming.store, names, count)
    else:
        ours.store, err = merged_stores(ours.store, incoming.store, names, count)
        raise_for(err, STEP)
    ours.windows = ours.no_windows()
    raise_for(ours.windows.merge([(windows, own), (incoming.windows, names)]), STEP)
    ours.lineage.merged |= theirs
    ours.inserted += incoming.inserted
    for name, left_out in incoming.left_out.items():
        ours.left_out[name] = ours.left_out.get(name, 0) + left_out
    for rows in incoming.late:
        ours.keep_late(rows)
    ours.early.add_all(incoming.early)
    ours.bring_in()
    return ours


def require_same_kind(spec: WheelSpec, other: WheelSpec, step: str) -> None:
    """Raise if the slots of two wheels differ in what they hold."""
    alike = kind_of(spec.plan) == kind_of(other.plan) and spec.rings == other.rings
    if not alike or spec.prefix != other.prefix or spec.open_slots != other.open_slots:
        mine, theirs = _described(spec), _described(other)
        differ = [n for n in mine if mine[n] != theirs[n]] or ["aggregates"]  # functions of the same name
        expected, got = ("; ".join(f"{n} {d[n]}" for n in differ) for d in (mine, theirs))
        raise UserError(
            step, expected=f"a wheel with {expected}", got=got,
            hint="aggregates, columns, keys, granularities, retention, prefix, write_ahead and whether there "
            "are sessions must be equal",
        )  # fmt: skip


def _described(spec: WheelSpec) -> dict[str, str]:
    """What must be equal in wheels of one kind, for people."""
    return {
        "aggregates": ", ".join(f"{n}={a}" for n, a in spec.given.items() if not n.startswith(HIDDEN)),
        "columns": str(spec.plan.input.schema), "time": spec.plan.input.time,
        "keys": ", ".join(spec.plan.group_keys) or "none",
        "rings": ", ".join(f"{r.shown} (keeps {r.retention})" for r in spec.rings),
        "prefix": str(spec.prefix), "write_ahead": str(spec.open_slots),
        "sessions": "yes" if FIRST_TIME in spec.given else "no",
    }  # fmt: skip


def _windows_of(state: WheelState) -> str:
    return ", ".join(f"{n}={w}" if n != str(w) else n for n, w in state.windows.specs.items()) or "none"


def _is_new(state: WheelState, theirs: dict[str, str]) -> bool:
    """True if no row of another wheel is in this one; False if all are. An error if some are."""
    ours = {state.lineage.name: state.id, **state.lineage.merged}
    if all(ours.get(name) == at for name, at in theirs.items()):
        return False
    if clash := sorted(set(theirs) & set(ours)):
        raise UserError(
            STEP, expected="a wheel of which nothing was merged before",
            got=f"one with rows of {', '.join(clash)}, which was: they would count twice",
            hint="merge each wheel once, when it is complete; tm.Replicas reads wheels that still take rows",
        )  # fmt: skip
    return True
