"""Sliding windows over a stream as it comes, every hundred rows a watermark (paper 001, section 4.2).

Peers: the window engine, which gets all rows at once and no watermarks; a finger tree of partial sums for
each second, or each slide where that is longer; the same sums in a sorted list; and DuckDB, which
holds the events and is asked again for the windows that close.
"""

from __future__ import annotations

import functools
import itertools
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import duckdb
import numpy as np
import pyarrow as pa

import tidemill as tm
from benchmarks.answers import Mismatch
from benchmarks.harness import Answers, Case, Measured
from benchmarks.wheels.data import SCHEMA, SECOND, Ints, sensor, trips, wheel
from benchmarks.wheels.tree import SumTree
from tidemill import col

EVERY = 100
"""Rows between two watermarks."""
ARITY = 32
"""Of the tree; in Python, wide nodes are faster than the 4 and 8 of the paper."""


@dataclass(frozen=True)
class Ask:
    """Windows in seconds; a range of None goes back to the start."""

    range: int | None
    slide: int

    @property
    def shown(self) -> str:
        return f"{'growing' if self.range is None else f'{self.range} s'} / {self.slide} s"

    def begin(self, end: int, start: int) -> int:
        return start if self.range is None else end - self.range


@dataclass(frozen=True)
class Found:
    """The ends of windows, in seconds, and their sums, as far as a watermark."""

    ends: Ints
    sums: Ints
    until: int


class Follower(Protocol):
    """What keeps up with a stream, in seconds and rows."""

    def insert(self, first: int, until: int) -> None: ...
    def advance(self, now: int) -> None: ...
    def sums(self, ends: range) -> Iterable[int | None]: ...
    def forget(self, until: int) -> None: ...


def cases(quick: bool) -> list[Case]:
    rows, few = (20_000, 2_000) if quick else (1_000_000, 50_000)
    slides = (1,) if quick else (1, 10, 60)
    asked = [Ask(ratio * slide, slide) for ratio, slide in itertools.product((3, 300), slides)]
    asked.append(Ask(None, 10))
    return [
        _case(name, data, rows // fewer, few, ask)
        for name, data, fewer in (("sensor", sensor, 1), ("trips", trips, 10))
        for ask in asked
    ]


def _case(name: str, data: Callable[[int], pa.Table], rows: int, few: int, ask: Ask) -> Case:
    few = min(rows, few)
    in_wheel = _grow if ask.range is None else _slide
    systems: dict[str, Callable[[pa.Table], Measured]] = {
        "tidemill": lambda events: in_wheel(events, ask, 512),
        "write-ahead 64": lambda events: in_wheel(events, ask, 64),
        "window engine": lambda events: _by_engine(events, ask),
        "tree": lambda events: _follow(events, ask, functools.partial(_Tree, grain=1)),
    }
    if ask.slide > 1:
        systems["tree of slides"] = lambda events: _follow(
            events, ask, functools.partial(_Tree, grain=ask.slide)
        )
    systems["sorted list"] = lambda events: _follow(events, ask, _SortedList)
    systems["duckdb"] = lambda events: _follow(events, ask, _DuckDB, few)
    return Case(
        f"streaming/{name}, {ask.shown}", {"rows": rows, "rows in duckdb": few}, systems, same_windows,
        lambda: data(rows), repeats=2,
    )  # fmt: skip


def same_windows(answers: Answers) -> None:
    """All have the windows of the first one, each as far as it went."""
    (first, home), *others = answers.items()
    for name, found in others:
        kept = home.ends <= found.until
        if not np.array_equal(home.ends[kept], found.ends):
            raise Mismatch(f"{first} and {name} differ: {kept.sum():,} and {len(found.ends):,} windows")
        bad = np.flatnonzero(home.sums[kept] != found.sums)
        if len(bad):
            at = bad[0]
            raise Mismatch(
                f"{first} and {name} differ in {len(bad):,} windows, first at {found.ends[at]}: "
                f"{home.sums[kept][at]} and {found.sums[at]}"
            )


# -- Tidemill


def _slide(events: pa.Table, ask: Ask, ahead: int) -> Measured:
    ts = _ticks(events)
    marks = _watermarks(ts)
    batches = events.to_batches(max_chunksize=EVERY)
    filled = wheel(int(ts.min()), write_ahead=ahead)
    filled.window(f"{ask.range}s", f"{ask.slide}s")
    closed = []
    begin = time.perf_counter()
    for batch, mark in zip(batches, marks):
        filled.insert(batch)
        closed.append(filled.advance_to(mark))
    seconds = time.perf_counter() - begin
    return _measured(_found(pa.concat_tables(closed), marks[-1]), seconds, len(ts), len(ts))


def _grow(events: pa.Table, ask: Ask, ahead: int) -> Measured:
    return _follow(events, ask, functools.partial(_InWheel, ahead=ahead))


class _InWheel:
    """Ranges that grow are asked for, one by one: windows of a wheel have a length."""

    def __init__(self, events: pa.Table, ask: Ask, start: int, *, ahead: int) -> None:
        self._batches = events.to_batches(max_chunksize=EVERY)
        self._wheel = wheel(start * SECOND, write_ahead=ahead, retention="keep")
        self._start = start * SECOND

    def insert(self, first: int, until: int) -> None:
        self._wheel.insert(self._batches[first // EVERY])

    def advance(self, now: int) -> None:
        self._wheel.advance_to(now * SECOND)

    def sums(self, ends: range) -> Iterable[int | None]:
        return [self._wheel.query(self._start, end * SECOND) for end in ends]

    def forget(self, until: int) -> None:
        """Wheels do so by themselves."""


def _by_engine(events: pa.Table, ask: Ask) -> Measured:
    stream = tm.stream("events", time="ts", schema=SCHEMA)
    every = f"{ask.slide}s"
    window = tm.landmark(every) if ask.range is None else tm.hopping(f"{ask.range}s", every=every)
    query = stream.window(window).agg(value=tm.sum(col.v))
    until = _watermarks(_ticks(events))[-1]
    begin = time.perf_counter()
    table = query.run(events=events)
    seconds = time.perf_counter() - begin
    return _measured(_found(table, until), seconds, len(events), len(events))


# -- others


def _follow(
    events: pa.Table, ask: Ask, make: Callable[[pa.Table, Ask, int], Follower], most: int | None = None
) -> Measured:
    """Rows, watermarks and windows in turn. Of fewer rows, the time is that of all at the same rate."""
    ts = _ticks(events)
    rows = most or len(ts)
    marks = _watermarks(ts)[: rows // EVERY]
    start = int(ts.min()) // SECOND
    follower = make(events, ask, start)
    ends: list[int] = []
    sums: list[int] = []
    end = start // ask.slide * ask.slide + ask.slide
    begin = time.perf_counter()
    for number, mark in enumerate(marks):
        now = mark // SECOND
        follower.insert(number * EVERY, (number + 1) * EVERY)
        follower.advance(now)
        if end > now:
            continue
        closing = range(end, now + 1, ask.slide)
        for at, total in zip(closing, follower.sums(closing)):
            if total is not None:
                ends.append(at)
                sums.append(total)
        end = closing[-1] + ask.slide
        follower.forget(ask.begin(end, start))
    seconds = time.perf_counter() - begin
    found = Found(np.array(ends, dtype=np.int64), np.array(sums, dtype=np.int64), marks[-1] // SECOND)
    return _measured(found, seconds, rows, len(ts))


class _InSlots:
    """Values by second, or by a multiple of it."""

    def __init__(self, events: pa.Table, ask: Ask, start: int, grain: int = 1) -> None:
        self._slots = (_ticks(events) // (SECOND * grain)).tolist()
        self._values = np.asarray(events["v"]).tolist()
        self._ask, self._start, self._grain = ask, start, grain

    def advance(self, now: int) -> None:
        """Sums are up to date as they are."""

    def range_of(self, end: int) -> tuple[int, int]:
        return self._ask.begin(end, self._start) // self._grain, end // self._grain


class _Tree(_InSlots):
    """A finger tree of sums; see `tree`."""

    def __init__(self, events: pa.Table, ask: Ask, start: int, grain: int) -> None:
        super().__init__(events, ask, start, grain)
        self._tree = SumTree(ARITY)

    def insert(self, first: int, until: int) -> None:
        add = self._tree.add
        for slot, value in zip(self._slots[first:until], self._values[first:until]):
            add(slot, value)

    def sums(self, ends: range) -> Iterable[int | None]:
        return [self._tree.sum(*self.range_of(end)) for end in ends]

    def forget(self, until: int) -> None:
        self._tree.evict(until // self._grain)


class _SortedList(_InSlots):
    """A sum for each second in a list in order: what is late goes where it belongs by bisection."""

    def __init__(self, events: pa.Table, ask: Ask, start: int) -> None:
        super().__init__(events, ask, start)
        self._keys: list[int] = []
        self._sums: list[int] = []

    def insert(self, first: int, until: int) -> None:
        keys, sums = self._keys, self._sums
        for slot, value in zip(self._slots[first:until], self._values[first:until]):
            at = bisect_left(keys, slot)
            if at < len(keys) and keys[at] == slot:
                sums[at] += value
            else:
                keys.insert(at, slot)
                sums.insert(at, value)

    def sums(self, ends: range) -> Iterable[int | None]:
        for end in ends:
            low, high = (bisect_left(self._keys, at) for at in self.range_of(end))
            yield sum(self._sums[low:high]) if low < high else None

    def forget(self, until: int) -> None:
        old = bisect_left(self._keys, until)
        del self._keys[:old], self._sums[:old]


class _DuckDB:
    """All events in a table without an index; windows that close are asked for together."""

    ONE = "SELECT sum(v) FROM events WHERE ts >= $low AND ts < $high"
    SEVERAL = f"""
        WITH slots AS (
            SELECT ts // {SECOND} AS slot, sum(v) AS v FROM events
            WHERE ts >= $low AND ts < $high GROUP BY slot
        )
        SELECT stop, sum(v) FROM range($first, $last, $slide) AS ends(stop)
        JOIN slots ON slot < stop AND slot >= stop - $range GROUP BY stop
    """

    def __init__(self, events: pa.Table, ask: Ask, start: int) -> None:
        given = pa.table({"ts": _ticks(events), "v": events["v"]})
        self._batches = given.to_batches(max_chunksize=EVERY)
        self._ask, self._start = ask, start
        self._connection = duckdb.connect()
        self._connection.execute("SET threads = 2")
        self._connection.execute("CREATE TABLE events (ts BIGINT, v BIGINT)")

    def insert(self, first: int, until: int) -> None:
        self._connection.register("given", self._batches[first // EVERY])
        self._connection.execute("INSERT INTO events SELECT ts, v FROM given")

    def advance(self, now: int) -> None:
        """Windows are computed when they are asked for."""

    def sums(self, ends: range) -> Iterable[int | None]:
        bounds = {"low": self._ask.begin(ends[0], self._start) * SECOND, "high": ends[-1] * SECOND}
        if len(ends) == 1:
            return [_int(self._connection.execute(self.ONE, bounds).fetchall()[0][0])]
        window = {
            "first": ends[0], "last": ends[-1] + 1, "slide": ends.step,
            "range": self._ask.range or ends[-1] - self._start,
        }  # fmt: skip
        found = dict(self._connection.execute(self.SEVERAL, bounds | window).fetchall())
        return [_int(found.get(end)) for end in ends]

    def forget(self, until: int) -> None:
        """The events stay; they may be asked for again."""


def _int(value: Any) -> int | None:
    return None if value is None else int(value)


# -- helpers


def _ticks(events: pa.Table) -> Ints:
    return np.asarray(events["ts"].cast(pa.int64()))


def _watermarks(ts: Ints) -> list[int]:
    """After every hundred rows: no row to come is below it."""
    ends = list(range(EVERY, len(ts) + 1, EVERY))
    later = np.minimum.accumulate(ts[::-1])[::-1]
    return [int(later[e]) if e < len(ts) else int(ts.max()) + 1 for e in ends]


def _found(table: pa.Table, mark: int) -> Found:
    """A table of windows that are complete at a watermark."""
    ends = np.asarray(table["window_end"].cast(pa.int64())) // SECOND
    kept = np.flatnonzero(ends <= mark // SECOND)
    order = kept[np.argsort(ends[kept], kind="stable")]
    return Found(ends[order], np.asarray(table["value"])[order], mark // SECOND)


def _measured(found: Found, seconds: float, rows: int, all_rows: int) -> Measured:
    return Measured(found, seconds * all_rows / rows, {"million rows/s": rows / seconds / 1e6})
