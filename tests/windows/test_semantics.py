"""`windows`, `extent` and `wids` of every kind of window, on arbitrary streams."""

from __future__ import annotations

import math
from collections import Counter
from datetime import datetime, timedelta, timezone
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tidemill.core.errors import UserError
from tidemill.windows.semantics import bounds, extent, session_runs, wid_range, wids, windows
from tidemill.windows.spec import (
    GridWindow,
    PerEvent,
    Rows,
    Session,
    Sliding,
    Window,
    hopping,
    landmark,
    per_event,
    rows,
    session,
    tumbling,
)

LENGTH = st.integers(1, 12)
ORIGIN = st.integers(-20, 20)
EVERY = st.integers(2, 4)
COLUMNS = st.sampled_from(["k", ["k"], ["k", "j"]])


def of(make: Any, *arguments: Any, **options: Any) -> st.SearchStrategy[Any]:
    if make is not rows:
        options["on"] = st.just("ts")
    return st.builds(make, *arguments, **options)


def sampling(**options: Any) -> st.SearchStrategy[Any]:
    return LENGTH.flatmap(lambda n: of(hopping, st.just(n), st.integers(n + 1, 30), **options))


RANK = st.just("rank")

# Each row of DESIGN 4.1: its specifications, and its class by context.
KINDS: dict[str, tuple[st.SearchStrategy[Any], str]] = {
    "tumbling": (of(tumbling, LENGTH), "CF"),
    "tumbling, origin": (of(tumbling, LENGTH, origin=ORIGIN), "CF"),
    "tumbling, start": (of(tumbling, LENGTH, origin=ORIGIN, start=ORIGIN), "CF"),
    "hopping": (of(hopping, LENGTH, LENGTH), "CF"),
    "hopping, origin": (of(hopping, LENGTH, LENGTH, origin=ORIGIN), "CF"),
    "hopping, start": (of(hopping, LENGTH, LENGTH, start=ORIGIN), "CF"),
    "hopping, origin and start": (of(hopping, LENGTH, LENGTH, origin=ORIGIN, start=ORIGIN), "CF"),
    "slide > range": (sampling(), "CF"),
    "slide > range, origin": (sampling(origin=ORIGIN), "CF"),
    "landmark": (of(landmark, LENGTH, start=ORIGIN), "CF"),
    "rows": (of(rows, LENGTH, LENGTH), "CF"),
    "rows, ordered": (of(rows, LENGTH, LENGTH, order_by=st.just("ts")), "FCU"),
    "rows, partitioned": (of(rows, LENGTH, LENGTH, partition_by=COLUMNS), "FCF"),
    "per_event": (of(per_event, LENGTH), "FCB"),
    "per_event, partitioned": (of(per_event, LENGTH, partition_by=COLUMNS), "FCB"),
    "n-th": (of(per_event, LENGTH, EVERY), "FCB"),
    "n-th, partitioned": (of(per_event, LENGTH, EVERY, partition_by=COLUMNS), "FCB"),
    "n-th, ordered": (of(per_event, LENGTH, EVERY, order_by=st.just("v")), "FCU"),
    "n-th by rank": (of(per_event, LENGTH, EVERY, by=RANK), "FCU"),
    "n-th by rank, partitioned": (
        of(per_event, LENGTH, EVERY, by=RANK, partition_by=COLUMNS),
        "FCU",
    ),
    "session": (of(session, LENGTH), "FCA"),
    "session, partitioned": (of(session, LENGTH, partition_by=COLUMNS), "FCA"),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
some = examples(10, of=40)  # of each of the kinds

ROW = st.tuples(
    st.integers(-50, 50), st.sampled_from(["b", "a", None]), st.integers(1, 2), st.integers(0, 9)
)


@st.composite
def streams(draw: st.DrawFn) -> dict[str, list[Any]]:
    table = draw(st.lists(ROW, max_size=20))
    return {name: [row[i] for row in table] for i, name in enumerate(("ts", "k", "j", "v"))}


@st.composite
def cases(draw: st.DrawFn, kind: str) -> tuple[dict[str, list[Any]], Any]:
    return draw(streams()), draw(KINDS[kind][0])


def memberships(T: Any, S: Window) -> list[tuple[int, Any]]:
    """All pairs (row, window), from `wids` on all rows at once."""
    row, ids = wids(np.arange(len(T["ts"])), T, S)
    return list(zip(row.tolist(), ids.tolist()))


def label(T: dict[str, list[Any]], row: int, S: Window) -> Any:
    names = S.partition or ()
    values = tuple(T[name][row] for name in names)
    return values[0] if len(values) == 1 else values


def members(T: dict[str, list[Any]], S: Window) -> dict[Any, list[int]]:
    """The rows of each partition, in order of arrival (or of `order_by`)."""
    order = list(range(len(T["ts"])))
    if (by := getattr(S, "order_by", None)) is not None:
        key = [by, *(name for name in T if name != by)]
        order.sort(key=lambda row: [(T[n][row] is not None, T[n][row]) for n in key])
    found: dict[Any, list[int]] = {}
    for row in order:
        found.setdefault(label(T, row, S), []).append(row)
    return found


def definition(T: dict[str, list[Any]], S: Any) -> list[tuple[int, Any]]:
    """All pairs (row, window) by the table of DESIGN 4.1, row by row and window by window."""
    found = []
    for part, held in members(T, S).items():
        x = {row: T["ts"][row] for row in held}
        if isinstance(S, Rows):
            x = {row: number for number, row in enumerate(held)}
        for w, inside in {
            Sliding: grid, Rows: grid, PerEvent: at_events, Session: runs,
        }.get(type(S), landmarks)(held, x, S):  # fmt: skip
            name = (w, part) if S.partition else w
            found += [(row, name) for row in held if inside(x[row])]
    return sorted(found, key=repr)


def grid(held: list[int], x: dict[int, int], S: Any) -> Any:
    for w in range(-200, 200):
        end = S.origin + (w + 1) * S.slide
        start = end - S.length if S.start is None else max(S.start, end - S.length)
        yield w, lambda v, start=start, end=end: start <= v < end


def landmarks(held: list[int], x: dict[int, int], S: Any) -> Any:
    # The ids of a stream end with the first window that holds all of it.
    w = 0
    while S.origin + w * S.slide <= max(x.values()):
        yield w, lambda v, end=S.origin + (w + 1) * S.slide: S.origin <= v < end
        w += 1


def at_events(held: list[int], x: dict[int, int], S: PerEvent) -> Any:
    ordered = sorted(held, key=x.__getitem__) if S.by == "rank" else held
    ends = {x[row] for number, row in enumerate(ordered, 1) if number % S.every == 0}
    for w in ends:
        yield w, lambda v, w=w: w - S.range.ticks < v <= w


def runs(held: list[int], x: dict[int, int], S: Session) -> Any:
    values = sorted(set(x.values()))
    breaks = [b for a, b in pairwise(values) if b - a >= S.gap.ticks]
    firsts = [values[0], *breaks]
    for first, following in zip(firsts, [*breaks, math.inf]):
        yield first, lambda v, first=first, following=following: first <= v < following


@every_kind
@some
@given(data=st.data())
def test_wids_is_the_definition(kind: str, data: st.DataObject) -> None:
    T, S = data.draw(cases(kind))
    assert sorted(memberships(T, S), key=repr) == definition(T, S)


@every_kind
@some
@given(data=st.data())
def test_wids_and_extent_are_inverse(kind: str, data: st.DataObject) -> None:
    T, S = data.draw(cases(kind))
    by_row = memberships(T, S)
    by_window = [(row, w) for w in windows(T, S).tolist() for row in extent(w, T, S).tolist()]
    assert len(set(by_row)) == len(by_row)
    assert sorted(by_row, key=repr) == sorted(by_window, key=repr)


@every_kind
@some
@given(data=st.data())
def test_windows_hold_all_ids_once_in_order(kind: str, data: st.DataObject) -> None:
    T, S = data.draw(cases(kind))
    ids = windows(T, S).tolist()
    assert {w for _, w in memberships(T, S)} <= set(ids)
    if S.partition:
        rank = {name: i for i, name in enumerate(dict.fromkeys(part for _, part in ids))}
        ids = [(rank[part], w) for w, part in ids]
    assert ids == sorted(set(ids))


@every_kind
@some
@given(data=st.data())
def test_wids_of_many_rows_are_those_of_each(kind: str, data: st.DataObject) -> None:
    T, S = data.draw(cases(kind))
    size = len(T["ts"])
    picked = data.draw(st.lists(st.integers(0, size - 1), max_size=8)) if size else []
    row, ids = wids(np.asarray(picked, dtype=np.int64), T, S)
    one_by_one = [(t, w) for t in picked for w in wids(t, T, S).tolist()]
    assert list(zip(row.tolist(), ids.tolist())) == one_by_one


@every_kind
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_class_by_context(kind: str, data: st.DataObject) -> None:
    assert data.draw(KINDS[kind][0]).context == KINDS[kind][1]


@every_kind
@some
@given(data=st.data())
def test_bounds_agree_with_extents(kind: str, data: st.DataObject) -> None:
    T, S = data.draw(cases(kind))
    for name in windows(T, S).tolist():
        w, part = name if S.partition else (name, ())
        held = members(T, S)[part]
        x = dict(enumerate(T["ts"]))
        if isinstance(S, Rows):
            x = {row: number for number, row in enumerate(held)}
        if isinstance(S, Session):
            firsts, lasts = session_runs(np.sort([x[row] for row in held]), S.gap.ticks)
            last = dict(zip(firsts.tolist(), lasts.tolist()))[w]
            between = [row for row in held if w <= x[row] <= last]
        else:
            start, end = (int(bound) for bound in bounds(w, S))
            low, high = (start + 1, end + 1) if isinstance(S, PerEvent) else (start, end)
            between = [row for row in held if low <= x[row] < high]
        assert extent(name, T, S).tolist() == sorted(between)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "hop" in kind or "slide" in kind])
@some
@given(data=st.data(), x=st.integers(-60, 60))
def test_wids_of_hopping_is_the_formula_of_section_3_4(
    kind: str, data: st.DataObject, x: int
) -> None:
    S = data.draw(KINDS[kind][0])
    W = range(-200, 200)
    above = Fraction(x - S.origin, S.slide) - 1
    to = Fraction(x + S.length - S.origin, S.slide) - 1
    formula = [w for w in W if above < w <= to] if S.start is None or x >= S.start else []
    assert wids(0, [x], _unnamed(S)).tolist() == formula


def _unnamed(S: Sliding) -> Sliding:
    return Sliding(S.range, S.every, origin=S.origin, start=S.start)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "ordered" in kind])
@some
@given(data=st.data())
def test_order_by_makes_arrival_order_irrelevant(kind: str, data: st.DataObject) -> None:
    T, S = data.draw(cases(kind))
    shuffled = data.draw(st.permutations(range(len(T["ts"]))))
    U = {name: [values[row] for row in shuffled] for name, values in T.items()}

    def contents(stream: dict[str, list[Any]]) -> Counter[Any]:
        return Counter(
            (tuple(stream[name][row] for name in stream), w) for row, w in memberships(stream, S)
        )

    assert contents(T) == contents(U)


def test_per_event_counts_arrivals_in_order_by() -> None:
    T = {"ts": [10, 20, 30, 40], "seq": [4, 3, 2, 1]}
    assert windows(T, per_event(5, every=2, on="ts")).tolist() == [20, 40]
    assert windows(T, per_event(5, every=2, order_by="seq", on="ts")).tolist() == [10, 30]


def test_order_by_breaks_ties_by_the_other_columns_nulls_first() -> None:
    T = {"seq": [1, 1, None, 1], "a": ["z", None, "z", "z"], "b": [2, 9, 9, 1]}
    # In order: row 2 (null seq), row 1 (null a), row 3 (b = 1), row 0.
    assert [extent(w, T, rows(1, 1, order_by="seq")).tolist() for w in range(4)] == [
        [2], [1], [3], [0],
    ]  # fmt: skip


def test_order_by_needs_no_order_of_columns_after_the_last_tie() -> None:
    T = {"seq": [2, 1], "tags": [["a"], ["b"]]}
    assert extent(0, T, rows(1, 1, order_by="seq")).tolist() == [1]
    with pytest.raises(UserError, match=r"columns that can be ordered, got a column of list"):
        windows({"seq": [1, 1], "tags": [["a"], ["b"]]}, rows(1, 1, order_by="seq"))


# --- what T may be ------------------------------------------------------------------------------------

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
MOMENTS = [NOON, NOON + timedelta(minutes=6, microseconds=1)]
MICROS = [int(m.timestamp()) * 1_000_000 + m.microsecond for m in MOMENTS]
NAIVE = [m.replace(tzinfo=None) for m in MOMENTS]


@pytest.mark.parametrize(
    "T",
    [
        MICROS,
        tuple(MICROS),
        iter(MICROS),
        np.array(MICROS),
        np.array(NAIVE, dtype="datetime64[us]"),
        np.array(NAIVE, dtype="datetime64[ns]") + np.timedelta64(999, "ns"),
        MOMENTS,
        NAIVE,
        [m.astimezone(timezone(timedelta(hours=2))) for m in MOMENTS],
        [m.isoformat() for m in MOMENTS],
        {"ts": MICROS},
        {"ts": MOMENTS},
        pa.array(MICROS),
        pa.table({"ts": MOMENTS}),
        pa.table({"ts": pa.array(NAIVE, pa.timestamp("ns"))}),
        pa.table({"ts": pa.chunked_array([[MOMENTS[0]], [MOMENTS[1]]])}),
        pa.record_batch({"ts": pa.array(MOMENTS)}),
        pa.table({"ts": pa.array(MOMENTS).dictionary_encode()}),
    ],
    ids=lambda T: type(T).__name__,
)
def test_forms_of_a_stream(T: Any) -> None:
    minute = MICROS[0] // 60_000_000
    assert windows(T, tumbling("1m")).tolist() == list(range(minute, minute + 7))


def test_instants_are_floored_to_microseconds() -> None:
    T = np.array([-1], dtype="datetime64[ns]")
    assert windows(T, tumbling("1us")).tolist() == [-1]
    assert windows(pa.table({"ts": pa.array(T)}), tumbling("1us")).tolist() == [-1]


def test_days_hours_and_seconds_are_instants() -> None:
    for unit in ("D", "h", "m", "s", "ms"):
        T = np.array(["1970-01-02"], f"datetime64[{unit}]")
        assert windows(T, tumbling("1d")).tolist() == [1]


@every_kind
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_an_empty_stream_has_no_windows(kind: str, data: st.DataObject) -> None:
    S, T = data.draw(KINDS[kind][0]), {"ts": [], "k": [], "j": [], "v": []}
    assert windows(T, S).tolist() == []
    assert [part.tolist() for part in wids([], T, S)] == [[], []]
    assert extent((0, "x") if S.partition else 0, T, S).tolist() == []


@pytest.mark.parametrize(
    ("k", "labels"),
    [
        (["b", "a", "b"], ["a", "b"]),
        ([2, 1, 2], [1, 2]),
        ([2, None, 2], [None, 2]),
        ([None, None, None], [None]),
        ([True, False, True], [False, True]),
        (np.array(["b", "a", "b"]), ["a", "b"]),
        (pa.array(["b", None, "b"]).dictionary_encode(), [None, "b"]),
        ([NOON, None, NOON], [None, NOON]),
        ([0.0, 1.5, -0.0], [0.0, 1.5]),
    ],
)
def test_partition_labels(k: Any, labels: list[Any]) -> None:
    T, S = {"k": k}, rows(1, 1, partition_by="k")
    ids = windows(T, S).tolist()
    assert list(dict.fromkeys(part for _, part in ids)) == labels
    assert sorted(row for w in ids for row in extent(w, T, S)) == [0, 1, 2]
    assert extent((0, "none such"), T, S).tolist() == []


def test_not_a_number_is_one_partition_after_the_others() -> None:
    T, S = {"k": [math.nan, 1.0, -math.nan, None]}, rows(1, 1, partition_by="k")
    ids = windows(T, S).tolist()
    assert [repr(w) for w in ids] == ["(0, None)", "(0, 1.0)", "(0, nan)", "(1, nan)"]
    assert [extent(w, T, S).tolist() for w in ids] == [[3], [1], [0], [2]]


def test_partitions_by_several_columns_are_tuples() -> None:
    T = {"k": ["b", "b", None], "j": [2, 1, 1]}
    S = rows(1, 1, partition_by=["k", "j"])
    assert windows(T, S).tolist() == [(0, (None, 1)), (0, ("b", 1)), (0, ("b", 2))]
    assert wids(0, T, S).tolist() == [(0, ("b", 2))]


@pytest.mark.parametrize(
    ("T", "S", "message"),
    [
        ({"ts": [1, None]}, tumbling(5, on="ts"), "no nulls in column 'ts'.*got 1 of 2"),
        (pa.table({"at": [None, NOON]}), tumbling("5m", on="at"), "no nulls in column 'at'"),
        (np.array(["NaT"], "datetime64[us]"), tumbling("5m"), "no nulls in T"),
        ({"at": [None]}, session("5m"), "no nulls in column 'at'"),
        ([True], tumbling(5), "ints, floats, instants or durations in T, got bool"),
        ([True], tumbling(5), "ints, floats, instants or durations in T, got bool"),
        ([1, "a"], tumbling(5), "values of one type in T"),
        (["soon"], tumbling("5m"), "an ISO instant"),
        ([NOON], tumbling(5), "logical and clock time never mix"),
        ({"ts": [1], "k": [1]}, tumbling(5), "on= to name one of several columns"),
        ({"ts": [1]}, tumbling(5, on="at"), r"a column 'at' in T, got columns \['ts'\]"),
        ({"ts": [1]}, session(5, partition_by="k", on="ts"), "a column 'k' in T"),
        ({"ts": [1, 2], "k": [1]}, tumbling(5, on="ts"), "columns of one length"),
        ({"k": [[1], [2]]}, rows(1, 1, partition_by="k"), "columns that can be ordered"),
        ([1 << 63], tumbling(5), "values of one type|int64 ticks"),
        (np.array([1 << 63], np.uint64), tumbling(5), "int64 ticks in T"),
    ],
)
def test_bad_streams_are_refused(T: Any, S: Window, message: str) -> None:
    with pytest.raises(UserError, match=message):
        windows(T, S)


def test_rows_outside_the_stream_are_refused() -> None:
    for t in (-1, 2, [0, 2]):
        with pytest.raises(UserError, match="rows of T, 0 to 1"):
            wids(t, [1, 2], tumbling(5))


# --- the ends of int64 --------------------------------------------------------------------------------

TOP, BOTTOM = (1 << 63) - 1, -(1 << 63)


@pytest.mark.parametrize("x", [TOP, BOTTOM])
@pytest.mark.parametrize(
    "S", [tumbling(5), hopping(10, 5), per_event(5), session(5), landmark(5)], ids=str
)
def test_windows_beyond_int64_are_refused(S: Window, x: int) -> None:
    with pytest.raises(UserError, match="windows within int64 ticks"):
        windows([x], S)
    with pytest.raises(UserError, match="windows within int64 ticks"):
        wids(0, [x], S)


@settings(deadline=None)
@given(x=st.one_of(st.integers(TOP - 40, TOP), st.integers(BOTTOM, BOTTOM + 40)), n=LENGTH)
def test_nothing_wraps_near_the_ends_of_int64(x: int, n: int) -> None:
    for S in (tumbling(n), hopping(2 * n, n), per_event(n), session(n)):
        try:
            ids = wids(0, [x], S).tolist()
        except UserError:
            assert min(x - BOTTOM, TOP - x) <= 3 * n
            continue
        assert all(extent(w, [x], S).tolist() == [0] for w in ids) and ids
        if isinstance(S, GridWindow):
            first, last = wid_range(x, S)
            assert ids == list(range(int(first), int(last) + 1))


def test_gaps_wider_than_int64_part_sessions() -> None:
    T = [TOP - 10, BOTTOM + 10, TOP - 8]
    assert windows(T, session(5)).tolist() == [BOTTOM + 10, TOP - 10]
    assert windows(T, per_event(5)).tolist() == [BOTTOM + 10, TOP - 10, TOP - 8]


def test_bounds_of_sessions_need_their_rows() -> None:
    with pytest.raises(UserError, match="a window whose id fixes its bounds"):
        bounds([1], session(5))
