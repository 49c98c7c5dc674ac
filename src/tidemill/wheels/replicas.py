"""`tm.Replicas`: read wheels that still take rows as one (a state-based CRDT; paper 001, section 6).

Every wheel has one writer, so its states are ordered. The newest state of each wheel is kept separately and
replaced by newer ones. So merging is commutative, associative and idempotent, and no row counts twice or is
lost: later rows of a wheel arrive with its next state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Union

import numpy as np

from tidemill.core.errors import UserError
from tidemill.core.time import InstantLike
from tidemill.wheels.explain import ExplainedReplicas, explain_replicas
from tidemill.wheels.lineage import Lineage, is_older
from tidemill.wheels.memory.replicated_store import ReplicaStores
from tidemill.wheels.merge_wheels import merged, require_same_kind
from tidemill.wheels.queries import WheelQueries
from tidemill.wheels.state import WheelState
from tidemill.wheels.view import WheelView
from tidemill.wheels.wheel import Wheel
from tidemill.wheels.wheel_store import WheelStore

STEP = "replicas merge"


class Replicas(WheelQueries):
    """Read wheels of the same kind, which are written elsewhere, as one.

    The watermark is the earliest of all wheels: below it, every wheel is complete. `merge` copies a newer
    state of a wheel; later changes by its writer do not affect the copy.

    >>> from tidemill.aggregates.basic import count
    >>> from tidemill.wheels.wheel import Wheel
    >>> a, b = (Wheel(count(), schema={"t": "int64"}, time="t", start=0, granularities=[1]) for _ in "ab")
    >>> a.insert([{"t": 1}]), a.advance_to(5), b.insert([{"t": 2}]), b.advance_to(3)
    (None, None, None, None)
    >>> both = Replicas([a, b])
    >>> both.watermark, both.query(0, 5)
    (3, 2)
    >>> b.insert([{"t": 4}]), b.advance_to(5)
    (None, None)
    >>> both.merge(b), both.watermark, both.query(0, 5)
    (True, 5, 3)
    >>> both.merge(b)
    False
    """

    _view: WheelView

    def __init__(self, wheels: Iterable[Wheel | WheelStore]) -> None:
        """Read wheels as one; at least one is needed, because it defines the kind."""
        listed = list(wheels) if isinstance(wheels, Iterable) else [wheels]
        self._states: dict[str, WheelState] = {}
        for wheel in listed:
            self._states = self._with(wheel)
        if not self._states:
            raise UserError("replicas", expected="at least one wheel", got=repr(wheels))
        super().__init__(_view_of(self._states))

    def merge(self, other: Union[Wheel, WheelStore, Replicas]) -> bool:
        """Take over the newest state of a wheel, or of all wheels of other replicas. False if nothing is new.

        A wheel whose rows are already inside another one is an error, and so are two continuations of one
        save: rows would count twice.
        """
        states = self._with(other)
        if states == self._states:
            return False
        view = _view_of(states)
        self._states, self._view = states, view
        return True

    def wheel(self) -> Wheel:
        """Merge all replicas into one wheel in memory that takes rows; its watermark is the latest of all.

        It is a new wheel, into which the replicas were merged.
        """
        whole, *others = (s.copy() for s in self._states.values())
        first = {whole.lineage.name: whole.id}
        for other in others:
            whole = merged(whole, other) or whole
        whole.lineage = Lineage(merged=first | whole.lineage.merged)
        return Wheel.of_state(whole)

    def explain(self, start: InstantLike, end: InstantLike) -> ExplainedReplicas:
        """How each wheel would answer a range, as far as the earliest watermark."""
        view, (a, b) = self._view, self._bounds(start, end)
        stores = {n: s.store for n, s in self._states.items()}
        return explain_replicas(stores, a, b, lambda slot: view.instant(slot * view.grain))

    def stats(self) -> dict[str, Any]:
        """Slots and bytes by ring, and the watermark of each wheel by name."""
        each = {n: s.instant(s.store.now * s.grain) for n, s in self._states.items()}
        return {**super().stats(), "replicas": each}

    def _with(self, other: Any) -> dict[str, WheelState]:
        """The states held, replaced or extended by those of `other` that are newer."""
        if isinstance(other, Replicas):
            coming = list(other._states.values())
        elif isinstance(other, (Wheel, WheelStore)):
            coming = [_kept(other)]
        else:
            shared = isinstance(other, WheelQueries)
            raise UserError(
                STEP, expected="a wheel, or replicas", got=repr(other),
                hint="save the shared wheel where it is written, and open the save" if shared else "",
            )  # fmt: skip
        states = dict(self._states)
        for state in coming:
            name = state.lineage.name
            if states:
                require_same_kind(next(iter(states.values())).spec, state.spec, STEP)
            if (held := states.get(name)) is not None:
                older = is_older(held.id, state.id)
                if older is None:
                    raise UserError(
                        STEP, expected=f"a state of wheel {name} that follows {held.id}", got=state.id,
                        hint="two continuations of one save are two wheels: rows of the save are in both",
                    )  # fmt: skip
                if not older or held.id == state.id:
                    continue
            states[name] = state
        inside = [n for s in states.values() for n in s.lineage.merged]
        if twice := {n for n in inside if n in states or inside.count(n) > 1}:
            raise UserError(
                STEP, expected="wheels with rows of their own",
                got=f"wheels {', '.join(sorted(twice))} both alone and merged into another",
                hint="give only one of the two: rows would count twice",
            )  # fmt: skip
        return states


def _kept(wheel: Wheel | WheelStore) -> WheelState:
    """A snapshot of the wheel, checked for errors and checksums."""
    state = wheel.snapshot()
    state.require_sound(STEP)
    state.require_verified()
    return state


def _view_of(states: dict[str, WheelState]) -> WheelView:
    """All wheels as one store that numbers keys anew."""
    each = list(states.values())
    stores = [s.store for s in each]
    view = WheelView(each[0].spec, stores[0])
    numbers = []
    for state in each:
        known = np.arange(state.store.keys)
        numbers.append(view.keys.encode(state.keys.decode(known)) if view.keyed else known)
    view.store = ReplicaStores(stores, numbers, view.keys.count)
    return view
