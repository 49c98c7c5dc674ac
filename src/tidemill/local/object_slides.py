"""Move partials that are Python objects from window to window: `codegen.fold` does the same for numbers.

Windows are ranges `[low, high)` of elements. Within a key both ends only move forward.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.aggregates.layout import StatePart
from tidemill.aggregates.values import functions
from tidemill.local.object_states import combine_objects


def slid(part: StatePart, states: list[Any], low: list[int], high: list[int], how: str) -> Iterator[Any]:
    """Yield the partial of each range of states; None is that of no rows. Do not change what is yielded.

    `how` is one of `optimize.choose_sliding`.
    """
    by = {"subtract": _subtracting, "two_stacks": _two_stacks}.get(how, _merging)
    return by(part, states, low, high)


class _Running:
    """A partial that others are combined into."""

    def __init__(self, part: StatePart) -> None:
        self.state: Any = None
        self._part, self._ours = part, False

    def take(self, other: Any) -> None:
        if self.state is None:
            self.state = other
        elif other is not None:
            self.state = combine_objects(self._part, self.state, other, ours=self._ours)
            self._ours = True


def _merging(part: StatePart, states: list[Any], low: list[int], high: list[int]) -> Iterator[Any]:
    for a, b in zip(low, high):
        running = _Running(part)
        for other in states[a:b]:
            running.take(other)
        yield running.state


def _subtracting(part: StatePart, states: list[Any], low: list[int], high: list[int]) -> Iterator[Any]:
    own = functions(part)
    assert own.inverse_into is not None
    begin = end = 0
    state, held = own.identity(), 0
    for a, b in zip(low, high):
        if a >= end or a < begin:  # no overlap with the range before
            begin = end = a
            state, held = own.identity(), 0
        for other in states[begin:a]:
            if other is not None:
                state, held = own.inverse_into(state, other), held - 1
        for other in states[max(end, a) : b]:
            if other is not None:
                state, held = own.combine_into(state, other), held + 1
        begin, end = a, max(end, b)
        yield state if held else None


def _two_stacks(part: StatePart, states: list[Any], low: list[int], high: list[int]) -> Iterator[Any]:
    # [a, middle) is answered by fronts[a]; [middle, end) by the running partial.
    fronts: dict[int, Any] = {}
    begin = middle = end = 0
    running = _Running(part)
    for a, b in zip(low, high):
        if a >= end or a < begin:
            middle = end = a
            running = _Running(part)
        begin = a
        while end < b:
            running.take(states[end])
            end += 1
        if middle <= a < b:
            fronts, front = {}, None
            for at in range(b - 1, a - 1, -1):
                front = fronts[at] = combine_objects(part, states[at], front)
            middle, running = b, _Running(part)
        yield combine_objects(part, fronts[a] if a < middle else None, running.state)


def slid_rows(
    part: StatePart, offsets: npt.NDArray[np.int64], rows: list[tuple[Any, ...]], low: list[int],
    high: list[int],
) -> Iterator[Any]:  # fmt: skip
    """Yield the partial of each range of elements, given the rows of each: rows come in and go out singly."""
    own = functions(part)
    assert own.subtract is not None
    begin = end = 0
    state = own.start()
    for a, b in zip(offsets[low].tolist(), offsets[high].tolist()):
        if a >= end or a < begin:
            begin = end = a
            state = own.start()
        for args in rows[begin:a]:
            state = own.subtract(state, args)
        for args in rows[max(end, a) : b]:
            state = own.add(state, args)
        begin, end = a, max(end, b)
        yield own.finish(own.copy_state(state)) if a < b else None
