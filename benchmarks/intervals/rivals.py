"""The rivals of paper 004, built here and compiled as Tidemill's loops are.

- *Key-OIJ* (what Flink does): tuples are divided among joiners by key. A joiner keeps the orders of each of
  its keys as they come, and scans all of them for each request.
- *SplitJoin*: orders are stored by the joiners in turn. Each request goes to all joiners, which scan their
  orders of its key; the answer is the sum of what they found.

Both keep orders in columns, apart by key, and drop those that have expired from the front at once.
"""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.intervals.traffic import Floats, Ints, Traffic
from tidemill.jit.kernel import adding_kernel, kernel

_ROOM = 64
"""The places of a key at first."""


@kernel
def _store(
    keys: Ints, times: Ints, values: Floats, begin: int, end: int, joiner: int, joiners: int, by_key: bool,
    below: int, heads: Ints, kept_times: Ints, kept_values: Floats,
) -> int:  # fmt: skip
    """Store the orders `[begin, end)` that a joiner is to have; return the first one without room.

    `heads` has of each key where its places begin, how many there are, the first order and the number of
    orders; its last row is the end of the places that are taken.
    """
    for i in range(begin, end):
        k = keys[i]
        if (k if by_key else i) % joiners != joiner:
            continue
        start = heads[k, 0]
        first = heads[k, 2]
        count = heads[k, 3]
        while count > 0 and kept_times[start + first] < below:
            first += 1
            count -= 1
        if first + count == heads[k, 1]:
            to = start
            if 2 * count >= heads[k, 1]:  # not many have expired: twice as many places
                room = max(2 * heads[k, 1], _ROOM)
                to = heads[-1, 0]
                if to + room > kept_times.size:
                    return i
                heads[-1, 0] = to + room
                heads[k, 0] = to
                heads[k, 1] = room
            for j in range(count):
                kept_times[to + j] = kept_times[start + first + j]
                kept_values[to + j] = kept_values[start + first + j]
            start = to
            first = 0
        kept_times[start + first + count] = times[i]
        kept_values[start + first + count] = values[i]
        heads[k, 2] = first
        heads[k, 3] = count + 1
    return end


@kernel
def _in_window(times: Ints, values: Floats, low: int, high: int) -> tuple[int, float]:
    """Return count and sum of orders in a window."""
    n, s = 0, 0.0
    for j in range(times.size):  # without branches, which nobody could predict
        inside = (low <= times[j]) & (times[j] <= high)
        n += 1 if inside else 0
        s += values[j] if inside else 0.0
    return n, s


@adding_kernel
def _in_window_simd(times: Ints, values: Floats, low: int, high: int) -> tuple[int, float]:
    """As `_in_window`; the flags of a compiled loop are those of its own function."""
    n, s = 0, 0.0
    for j in range(times.size):
        inside = (low <= times[j]) & (times[j] <= high)
        n += 1 if inside else 0
        s += values[j] if inside else 0.0
    return n, s


@kernel
def _scan(
    keys: Ints, times: Ints, begin: int, end: int, window: int, joiner: int, joiners: int, by_key: bool,
    simd: bool, heads: Ints, kept_times: Ints, kept_values: Floats, counts: Ints, sums: Floats,
) -> None:  # fmt: skip
    """Write count and sum of the orders in the window of each request that a joiner answers."""
    for i in range(begin, end):
        k = keys[i]
        if by_key and k % joiners != joiner:
            continue
        high = times[i]
        low = high - window
        first = heads[k, 0] + heads[k, 2]
        own_times = kept_times[first : first + heads[k, 3]]
        own_values = kept_values[first : first + heads[k, 3]]
        if simd:
            counts[i], sums[i] = _in_window_simd(own_times, own_values, low, high)
        else:
            counts[i], sums[i] = _in_window(own_times, own_values, low, high)


class Joiner:
    """One of several that work at the same time."""

    def __init__(self, given: Traffic, number: int, joiners: int, *, by_key: bool, simd: bool) -> None:
        self._given, self._window = given, given.workload.window
        self._share = number, joiners, by_key
        self._simd = simd
        self._heads = np.zeros((given.workload.keys + 1, 4), dtype=np.int64)
        self._times = np.empty(_ROOM * (given.workload.keys + 1), dtype=np.int64)
        self._values = np.empty(len(self._times))
        n = len(given.requests.times)
        self.counts, self.sums = np.zeros(n, dtype=np.int64), np.zeros(n)

    def join(self, begin: int, end: int) -> None:
        """Take the tuples `[begin, end)` of both streams: orders first, then requests."""
        requests, orders = self._given.requests, self._given.orders
        expired = self._given.below(begin) - self._window if begin else 0
        at, last = (int(orders.before[p]) for p in (begin, end))
        while at < last:
            at = _store(
                orders.keys, orders.times, orders.values, at, last, *self._share, expired, self._heads,
                self._times, self._values,
            )  # fmt: skip
            if at < last:
                self._times, self._values = (np.concatenate([a, a]) for a in (self._times, self._values))
        first, last = (int(requests.before[p]) for p in (begin, end))
        _scan(
            requests.keys, requests.times, first, last, self._window, *self._share, self._simd, self._heads,
            self._times, self._values, self.counts, self.sums,
        )  # fmt: skip


class Rival:
    """Key-OIJ (`by_key`) or SplitJoin, on as many threads as there are joiners."""

    def __init__(
        self, given: Traffic, joiners: int, pool: Executor, *, by_key: bool, simd: bool = False
    ) -> None:
        self._joiners = [Joiner(given, j, joiners, by_key=by_key, simd=simd) for j in range(joiners)]
        self._pool = pool

    def push(self, begin: int, end: int) -> None:
        """Take the tuples `[begin, end)` of both streams, and answer the requests among them."""
        calls = [self._pool.submit(joiner.join, begin, end) for joiner in self._joiners[1:]]
        self._joiners[0].join(begin, end)
        for call in calls:
            call.result()

    def end(self) -> None:
        pass  # every request was answered

    @property
    def answers(self) -> dict[str, npt.NDArray[Any]]:
        """What belongs to each request; the sum of nothing is not a number."""
        n = sum(joiner.counts for joiner in self._joiners)
        s = sum(joiner.sums for joiner in self._joiners)
        return {"i": np.arange(len(n)), "n": n, "s": np.where(n > 0, s, np.nan)}
