"""Ranges of elements against the definition of windows."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidemill.kernels import window_ranges as ranges
from tidemill.windows.semantics import extent, windows
from tidemill.windows.spec import Window, hopping, per_event, session

FAR = 1 << 40
elements = st.lists(st.tuples(st.integers(0, 2), st.integers(-20, 40)), unique=True, max_size=25)


def arrays(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    ordered = sorted(pairs)
    return (
        np.asarray([k for k, _ in ordered], dtype=np.int64),
        np.asarray([p for _, p in ordered], dtype=np.int64),
    )


def found(result: ranges.Ranges, pane: np.ndarray) -> set[tuple[int, int, tuple[int, ...]]]:  # type: ignore[type-arg]
    return {
        (int(k), int(w), tuple(pane[lo:hi].tolist()))
        for k, w, lo, hi in zip(result.kid, result.wid, result.low, result.high)
    }


def defined(kid: np.ndarray, pane: np.ndarray, spec: Window) -> set[tuple[int, int, tuple[int, ...]]]:  # type: ignore[type-arg]
    whole = set()
    for k in set(kid.tolist()):
        own = pane[kid == k]
        for w in windows(own, spec):
            rows = tuple(own[extent(w, own, spec)].tolist())
            if rows:
                whole.add((k, int(w), rows))
    return whole


@given(elements, st.integers(1, 9), st.integers(1, 9))
def test_grid(pairs: list[tuple[int, int]], length: int, slide: int) -> None:
    kid, pane = arrays(pairs)
    limits = {"after": np.asarray([-FAR]), "until": np.asarray([FAR])}
    for room in (1, 3, 1000):
        some = list(
            ranges.grid(kid, pane, length=length, slide=slide, shift=0, since=-FAR, room=room, **limits)
        )
        assert all(len(one) <= room for one in some)
        result = _joined(some)
        assert found(result, pane) == defined(kid, pane, hopping(length, every=slide))
        assert len(found(result, pane)) == len(result)


def _joined(some: Iterable[ranges.Ranges]) -> ranges.Ranges:
    none = np.empty(0, dtype=np.int64)
    columns = [none] * 4, *((r.kid, r.wid, r.low, r.high) for r in some)
    return ranges.Ranges(*(np.concatenate(own) for own in zip(*columns)))


@given(elements, st.integers(1, 9), st.integers(1, 9), st.integers(-5, 8))
def test_grid_in_two_goes_gives_every_window_once(
    pairs: list[tuple[int, int]], length: int, slide: int, until: int
) -> None:
    kid, pane = arrays(pairs)
    grid = {"length": length, "slide": slide, "shift": 0, "since": -FAR, "room": 1000}
    low, middle, high = (np.asarray([v]) for v in (-FAR, until, FAR))
    first = found(_joined(ranges.grid(kid, pane, **grid, after=low, until=middle)), pane)  # type: ignore[arg-type]
    rest = found(_joined(ranges.grid(kid, pane, **grid, after=middle, until=high)), pane)  # type: ignore[arg-type]
    assert not first & rest
    assert first | rest == defined(kid, pane, hopping(length, every=slide))


@given(elements, st.integers(1, 12))
def test_per_event(pairs: list[tuple[int, int]], length: int) -> None:
    kid, time = arrays(pairs)
    every = np.ones(len(kid), dtype=np.bool_)
    after, below = np.array([-FAR]), np.array([FAR])
    result = ranges.per_event(kid, time, length=length, defines=every, after=after, below=below)
    assert found(result, time) == defined(kid, time, per_event(length))


@given(elements, st.integers(1, 12))
def test_sessions(pairs: list[tuple[int, int]], gap: int) -> None:
    kid, time = arrays(pairs)
    result = ranges.sessions(kid, time, time, gap=gap, below=np.array([FAR]))
    assert found(result, time) == defined(kid, time, session(gap))


@given(elements, st.integers(1, 12), st.integers(-20, 40))
def test_a_session_that_can_grow_is_not_given(pairs: list[tuple[int, int]], gap: int, below: int) -> None:
    kid, time = arrays(pairs)
    result = ranges.sessions(kid, time, time, gap=gap, below=np.array([below]))
    closed = {s for s in defined(kid, time, session(gap)) if s[2][-1] + gap <= below}
    assert found(result, time) == closed


@given(elements, st.integers(1, 9), st.integers(1, 9), st.sampled_from([-FAR, 0, 3]))
def test_every_window_from_the_first_on_is_there_empty_or_not(
    pairs: list[tuple[int, int]], length: int, slide: int, since: int
) -> None:
    kid, pane = arrays(pairs)
    spec = hopping(length, every=slide, start=None if since == -FAR else since)
    first, last = -4, 6
    result = ranges.every(
        kid, pane, length=length, slide=slide, shift=0, since=since, first=np.full(3, first),
        after=np.asarray([-FAR]), until=np.asarray([last]),
    )  # fmt: skip
    ids = list(zip(result.kid.tolist(), result.wid.tolist()))
    assert ids == [(k, w) for k in range(3) for w in range(first, last + 1)]
    full = {row for row in found(result, pane) if row[2]}
    assert full == {row for row in defined(kid, pane, spec) if first <= row[1] <= last}


@given(elements, st.lists(st.tuples(st.integers(0, 1), st.integers(-9, 30), st.integers(0, 8)), max_size=12))
def test_keys_are_looked_up_in_the_windows_of_their_partition(
    pairs: list[tuple[int, int]], given_windows: list[tuple[int, int, int]]
) -> None:
    kid, pane = arrays(pairs)
    partition = kid % 2
    ends: dict[int, list[int]] = {0: [], 1: []}
    windows = []
    for p, first, length in sorted(given_windows):  # both ends only move forward
        ends[p].append(max([first + length, *ends[p]]))
        windows.append((p, len(windows), first, ends[p][-1]))
    columns = np.array(windows, dtype=np.int64).reshape(-1, 4).T
    result = ranges.looked_up(kid, pane, partition, ranges.PartitionWindows.of(*columns, partitions=2))
    expected = {
        (k, w, rows, last)
        for k in set(kid.tolist())
        for p, w, first, last in windows
        if p == k % 2 and (rows := tuple(t for t in pane[kid == k].tolist() if first <= t <= last))
    }
    assert result.end is not None
    got = [
        (k, w, tuple(pane[lo:hi].tolist()), last)
        for k, w, lo, hi, last in zip(
            *(c.tolist() for c in (result.kid, result.wid, result.low, result.high, result.end))
        )
    ]
    assert len(got) == len(expected) and set(got) == expected


def test_one_window_may_lie_far_behind_the_next_element() -> None:
    """The windows between two elements are not tried one by one, and none is left out."""
    starts = np.arange(100)
    windows = ranges.PartitionWindows.of(np.zeros(100, np.int64), starts, starts, starts + 1, 1)
    result = ranges.looked_up(np.array([4, 4, 4]), np.array([0, 50, 99]), np.zeros(3, np.int64), windows)
    assert result.wid.tolist() == [0, 49, 50, 98, 99]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(-20, 40)), max_size=25), st.integers(1, 4),
    st.integers(1, 9), st.integers(-30, 30), st.integers(-4, 8),
)  # fmt: skip
def test_last_rows(pairs: list[tuple[int, int]], length: int, every: int, origin: int, until: int) -> None:
    partition, ticks = arrays(pairs)
    begin = ranges.begins(partition, 4)
    number = np.arange(len(pairs)) - begin[partition] + 5  # five rows of each are gone
    first = np.array([-3, 0, 2, 1])
    found = ranges.last_rows(
        begin, number, ticks, first=first, until=until, length=length, origin=origin, every=every
    )
    windows = {
        p: [
            (w, 5 + int((ticks[partition == p] < origin + (w + 1) * every).sum()) - 1)
            for w in range(first[p], until + 1)
        ]
        for p in set(partition.tolist())
    }
    for p in range(4):
        some = slice(found.begin[p], found.begin[p + 1])
        assert list(zip(found.wid[some].tolist(), found.last[some].tolist())) == windows.get(p, [])
    assert (found.first == found.last - length + 1).all()


def test_very_many_windows_for_each_element_do_not_overflow() -> None:
    none = np.zeros(16, dtype=np.int64)
    found = list(
        ranges.grid(
            none, np.arange(16), length=1 << 60, slide=1, shift=0, since=-(1 << 62),
            after=np.array([-(1 << 61)]), until=np.array([15]), room=5,
        )
    )  # fmt: skip
    assert np.concatenate([f.wid for f in found]).tolist() == list(range(16))
