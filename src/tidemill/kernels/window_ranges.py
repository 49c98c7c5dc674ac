"""Find windows as ranges of elements sorted by key and pane, with one kernel for each kind of window.

For every window with elements, a kernel returns the key, the window id and the range `[low, high)` of its
elements. Within a key both ends only move forward, as `codegen/fold.py` requires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.jit.kernel import kernel
from tidemill.kernels.memory import empty

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ranges:
    """Windows: key, window id, first element, end of elements."""

    kid: Ints
    wid: Ints
    low: Ints
    high: Ints
    end: Ints | None = None
    """The end of each window, if it follows neither from the id nor from the elements."""

    def __len__(self) -> int:
        return len(self.kid)

    def __getitem__(self, some: slice | npt.NDArray[np.bool_]) -> Ranges:
        end = None if self.end is None else self.end[some]
        return Ranges(self.kid[some], self.wid[some], self.low[some], self.high[some], end)


def _filled(run: Callable[..., int], most: int, *args: Any) -> Ranges:
    """Run a kernel with room for at most `most` windows, and return the windows that it finds."""
    out = [empty(most) for _ in range(4)]
    n = run(*args, *out)
    return Ranges(*(column[:n] for column in out))


@kernel
def _most(kid: Ints, each: int, after: Ints, until: Ints) -> int:
    """Return an upper bound on the number of windows, from the limits and the elements of each key."""
    total = 0
    a = 0
    for i in range(1, kid.size + 1):
        if i == kid.size or kid[i] != kid[a]:
            k = kid[a]
            span = until[k if until.size > 1 else 0] - after[k if after.size > 1 else 0]
            total += max(0, min(span, (i - a) * each))
            a = i
    return total


@kernel
def _grid(
    kid: Ints, pane: Ints, length: int, slide: int, shift: int, since: int, after: Ints,
    until: Ints, state: Ints, okid: Ints, owid: Ints, olow: Ints, ohigh: Ints,
) -> int:  # fmt: skip
    """Continue where `state` says, until there is no more room; `state[0]` is then the key to go on with."""
    n = kid.size
    m = 0
    a, lo, hi, w, begun = state
    while a < n:
        b = a
        k = kid[a]
        while b < n and kid[b] == k:
            b += 1
        if begun == 0:
            lo = a
            while lo < b and pane[lo] < since:
                lo += 1
            hi = lo
            if lo < b:
                w = max(after[k if after.size > 1 else 0] + 1, (pane[lo] - shift) // slide)
        begun = 0
        if lo < b:
            last = until[k if until.size > 1 else 0]
            while w <= last:
                if m == okid.size:
                    state[0], state[1], state[2], state[3], state[4] = a, lo, hi, w, 1
                    return m
                end = shift + (w + 1) * slide
                start = end - length
                while hi < b and pane[hi] < end:
                    hi += 1
                while lo < hi and pane[lo] < start:
                    lo += 1
                if lo < hi:
                    okid[m] = k
                    owid[m] = w
                    olow[m] = lo
                    ohigh[m] = hi
                    m += 1
                    w += 1
                elif hi == b:
                    break
                else:  # an empty window: skip to the first window that can contain the next element
                    w = max(w + 1, (pane[hi] - shift) // slide)
        a = b
    state[0] = n
    return m


def grid(
    kid: Ints, pane: Ints, *, length: int, slide: int, shift: int, since: int, after: Ints,
    until: Ints, room: int,
) -> Iterator[Ranges]:  # fmt: skip
    """Find tumbling and hopping windows with ids above `after`, up to `until`. All lengths are in panes.

    The limits are by key, or one for all keys. Panes below `since` are in no window. At most `room` windows
    are returned at once: one element can be in very many.
    """
    each = min(room, max(1, -(-length // slide)))  # more would be cut off, and their sum could overflow
    most = min(room, _most(kid, each, after, until))
    state = np.zeros(5, dtype=np.int64)
    while most and state[0] < len(kid):
        yield _filled(_grid, most, kid, pane, length, slide, shift, since, after, until, state)


@kernel
def _every(
    kid: Ints, pane: Ints, length: int, slide: int, shift: int, since: int, after: Ints,
    until: Ints, first: Ints, keys: int, okid: Ints, owid: Ints, olow: Ints, ohigh: Ints,
) -> int:  # fmt: skip
    n = kid.size
    m = 0
    a = 0
    for k in range(keys):
        while a < n and kid[a] < k:
            a += 1
        b = a
        while b < n and kid[b] == k:
            b += 1
        lo = a
        while lo < b and pane[lo] < since:
            lo += 1
        hi = lo
        begin = after[k if after.size > 1 else 0] + 1
        last = until[k if until.size > 1 else 0]
        for w in range(max(begin, first[k]), last + 1):
            end = shift + (w + 1) * slide
            while hi < b and pane[hi] < end:
                hi += 1
            if length >= 0:
                while lo < hi and pane[lo] < end - length:
                    lo += 1
            okid[m] = k
            owid[m] = w
            olow[m] = lo
            ohigh[m] = hi
            m += 1
        a = b
    return m


def every(
    kid: Ints, pane: Ints, *, length: int | None, slide: int, shift: int, since: int,
    after: Ints, until: Ints, first: Ints,
) -> Ranges:  # fmt: skip
    """Find every window of every key from its `first` on, also empty ones: landmark and filled windows."""
    long = -1 if length is None else length
    most = int(np.maximum(until - np.maximum(after + 1, first) + 1, 0).sum())
    return _filled(
        _every, most, kid, pane, long, slide, shift, since, after, until, first, len(first)
    )  # fmt: skip


@kernel
def _per_event(
    kid: Ints, time: Ints, length: int, defines: Any, after: Ints, below: Ints,
    okid: Ints, owid: Ints, olow: Ints, ohigh: Ints,
) -> int:  # fmt: skip
    n = kid.size
    m = 0
    lo = 0
    for i in range(n):
        if i > 0 and kid[i] != kid[i - 1]:
            lo = i
        t = time[i]
        k = kid[i]
        if t < after[k if after.size > 1 else 0] or t >= below[k if below.size > 1 else 0]:
            continue
        if not defines[i]:
            continue
        while time[lo] <= t - length:
            lo += 1
        okid[m] = k
        owid[m] = t
        olow[m] = lo
        ohigh[m] = i + 1
        m += 1
    return m


def per_event(
    kid: Ints, time: Ints, *, length: int, defines: npt.NDArray[np.bool_], after: Ints, below: Ints
) -> Ranges:
    """Find the windows that end at elements where `defines` is true and the time is in `[after, below)`.

    The limits are by key, or one for all keys.
    """
    return _filled(_per_event, len(kid), kid, time, length, defines, after, below)


@kernel
def _sessions(
    kid: Ints, time: Ints, last: Ints, gap: int, below: Ints, okid: Ints, owid: Ints, olow: Ints,
    ohigh: Ints,
) -> int:  # fmt: skip
    n = kid.size
    m = 0
    a = 0
    while a < n:
        b = a + 1
        while b < n and kid[b] == kid[a] and time[b] - last[b - 1] < gap:
            b += 1
        # The session is complete: no row at or above the watermark can extend it.
        if last[b - 1] < below[kid[a] if below.size > 1 else 0] - gap + 1:
            okid[m] = kid[a]
            owid[m] = time[a]
            olow[m] = a
            ohigh[m] = b
            m += 1
        a = b
    return m


def sessions(kid: Ints, time: Ints, last: Ints, *, gap: int, below: Ints) -> Ranges:
    """Find the sessions with gaps below `gap` that are complete at the watermark `below`.

    An element has rows from `time` to `last`, and elements of a key do not overlap.

    The watermark is by key, or one for all keys.
    """
    return _filled(_sessions, len(kid), kid, time, last, gap, below)


@dataclass(frozen=True)
class PartitionWindows:
    """Windows of partitions, in order: the ids, and the first and the last pane of each."""

    begin: Ints
    """Where the windows of each partition begin, and the number of all windows."""
    wid: Ints
    first: Ints
    last: Ints

    @staticmethod
    def of(partition: Ints, wid: Ints, first: Ints, last: Ints, partitions: int) -> PartitionWindows:
        """Return windows in order of partitions; both ends only move forward within one."""
        return PartitionWindows(begins(partition, partitions), wid, first, last)


def begins(partition: Ints, partitions: int) -> Ints:
    """Return where each partition begins in an array that is in order of partitions, and its length.

    >>> begins(np.array([0, 0, 2]), 3)
    array([0, 2, 2, 3])
    """
    return np.append(0, np.cumsum(np.bincount(partition, minlength=partitions)))


@kernel
def _looked_up(
    kid: Ints, pane: Ints, partition: Ints, begin: Ints, wid: Ints, first: Ints, last: Ints,
    okid: Ints, owid: Ints, olow: Ints, ohigh: Ints, oend: Ints,
) -> int:  # fmt: skip
    """Return how many windows there are; those that there is room for are written."""
    n = kid.size
    m = 0
    a = 0
    while a < n:
        b = a + 1
        while b < n and kid[b] == kid[a]:
            b += 1
        w, end = begin[partition[a]], begin[partition[a] + 1]
        lo = a
        hi = a
        while w < end:
            while hi < b and pane[hi] <= last[w]:
                hi += 1
            while lo < hi and pane[lo] < first[w]:
                lo += 1
            if lo < hi:
                if m < okid.size:
                    okid[m] = kid[a]
                    owid[m] = wid[w]
                    olow[m] = lo
                    ohigh[m] = hi
                    oend[m] = last[w]
                m += 1
                w += 1
            elif hi == b:
                break
            else:  # the first window that does not end before the next element
                most = end
                while w < most:
                    middle = (w + most) // 2
                    if last[middle] < pane[hi]:
                        w = middle + 1
                    else:
                        most = middle
        a = b
    return m


def looked_up(kid: Ints, pane: Ints, partition: Ints, windows: PartitionWindows) -> Ranges:
    """Find the elements of each key in the windows of its partition, without empty windows.

    `partition` has that of each element. The end of each window is its last pane.
    """
    args = (kid, pane, partition, windows.begin, windows.wid, windows.first, windows.last)
    most = _looked_up(*args, *(empty(0) for _ in range(5)))
    out = [empty(most) for _ in range(5)]
    _looked_up(*args, *out)
    return Ranges(*out)


@kernel
def _last_rows(
    begin: Ints, number: Ints, ticks: Ints, windows: Ints, first: Ints, origin: int, every: int,
    owid: Ints, olast: Ints,
) -> None:  # fmt: skip
    for p in range(begin.size - 1):
        at, end = begin[p], begin[p + 1]
        for i in range(windows[p], windows[p + 1]):
            w = first[p] + i - windows[p]
            below = origin + (w + 1) * every
            while at < end and ticks[at] < below:
                at += 1
            owid[i] = w
            olast[i] = number[begin[p]] + at - begin[p] - 1


def last_rows(
    begin: Ints, number: Ints, ticks: Ints, *, first: Ints, until: int, length: int, origin: int,
    every: int,
) -> PartitionWindows:  # fmt: skip
    """Find the windows of the last `length` rows at each multiple of `every`, as ranges of row numbers.

    Each partition has its rows from `begin` on, with consecutive numbers and ticks that do not decrease, and
    the windows from its `first` to `until`. One without rows has no windows.
    """
    count = np.where(np.diff(begin) > 0, np.maximum(until - first + 1, 0), 0)
    windows = np.append(0, np.cumsum(count))
    wid, last = empty(int(windows[-1])), empty(int(windows[-1]))
    _last_rows(begin, number, ticks, windows, first, origin, every, wid, last)
    return PartitionWindows(windows, wid, last - length + 1, last)


@kernel
def _number(partition: Ints, counters: Ints, out: Ints) -> None:
    for i in range(partition.size):
        k = partition[i]
        out[i] = counters[k]
        counters[k] += 1


def number_rows(partition: Ints, counters: Ints) -> Ints:
    """Return the position of each row in its partition, starting at `counters`, and advance them."""
    out = np.empty(len(partition), dtype=np.int64)
    _number(partition, counters, out)
    return out
