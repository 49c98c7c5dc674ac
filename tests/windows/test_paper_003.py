"""The worked examples of paper 003, at the level of its window semantics (sections 2 to 6)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tidemill.core.time import instant
from tidemill.windows.semantics import bounds, extent, wids, windows
from tidemill.windows.spec import Window, hopping, landmark, per_event, rows, tumbling

START = "2005-06-14T12:00:00Z"
SECOND, MINUTE = 1_000_000, 60_000_000
Q1 = hopping("300 seconds", every="60 seconds", origin=START, start=START)
Q2 = rows(10, every=2)  # 1000 and 10 in the paper
Q3 = per_event("300 seconds", on="ts")
Q4 = rows(10, every=2, partition_by="seg")
Q5 = per_event("300 seconds", every=5, by="rank", on="ts")
SLIDE_BY_N = per_event("300 seconds", every=5, on="ts")


def at(clock: str) -> int:
    return instant(f"2005-06-14T{clock}Z")


def span(w: int, S: Window) -> tuple[int, int]:
    start, end = bounds(w, S)
    return int(start), int(end)


@pytest.mark.parametrize(
    ("w", "start", "end"), [(10, "12:06:00", "12:11:00"), (11, "12:07:00", "12:12:00")]
)
def test_q1_window_extents(w: int, start: str, end: str) -> None:
    assert span(w, Q1) == (at(start), at(end))
    T = [at(start) - 1, at(start), at(end) - 1, at(end)]
    assert extent(w, T, Q1).tolist() == [1, 2]


def test_figure_2_t1_belongs_to_windows_10_to_14() -> None:
    # Of the readings, exactly those of the minute from 12:10 do.
    T = at("12:09:00") + SECOND * np.arange(180)
    row, w = wids(np.arange(180), T, Q1)
    of_row = {int(t): w[row == t].tolist() for t in range(180)}
    belong = [t for t in range(180) if of_row[t] == [10, 11, 12, 13, 14]]
    assert belong == list(range(60, 120))


def test_figure_2_p1_completes_window_10() -> None:
    # No more tuples below 12:11 leaves nothing to come for windows up to 10.
    assert span(10, Q1)[1] == at("12:11:00")
    assert wids(0, [at("12:11:00")], Q1).min() == 11


def test_q1_partial_windows() -> None:
    T = at("12:00:00") + SECOND * np.arange(0, 600)
    assert [len(extent(w, T, Q1)) // 60 for w in range(6)] == [1, 2, 3, 4, 5, 5]
    assert windows(T, Q1)[0] == 0


def test_q1_without_a_start_has_no_partial_windows() -> None:
    S = hopping("300 seconds", every="60 seconds")
    start, end = bounds(np.arange(-5, 5), S)
    assert set((end - start).tolist()) == {300 * SECOND}


def test_section_3_3_tumbling_is_sliding_with_slide_equal_to_range() -> None:
    T = at("12:00:00") + SECOND * np.arange(0, 600, 7)
    S = tumbling("60 seconds", origin=START, start=START)
    assert hopping("60 seconds", every="60 seconds", origin=START, start=START) == S
    assert all(len(wids(t, T, S)) == 1 for t in range(len(T)))


def test_section_3_3_landmark_windows_start_at_the_beginning() -> None:
    T = at("12:00:00") + SECOND * np.arange(0, 300)
    S = landmark("60 seconds", start=START)
    assert [len(extent(w, T, S)) for w in windows(T, S)] == [60, 120, 180, 240, 300]


SEGMENTS = ["s6", "s6", "s6", "s7"] * 10


def test_q2_cuts_the_stream_then_groups() -> None:
    T = {"seg": SEGMENTS}
    counts = [Counter(SEGMENTS[row] for row in extent(w, T, Q2)) for w in range(5, 8)]
    assert counts == [{"s6": 7, "s7": 3}, {"s6": 8, "s7": 2}, {"s6": 7, "s7": 3}]


def test_q4_partitions_then_cuts_the_stream() -> None:
    T = {"seg": SEGMENTS}
    ids = windows(T, Q4).tolist()
    for seg in ("s6", "s7"):
        of_seg = [row for row, name in enumerate(SEGMENTS) if name == seg]
        # Once full, a window has as many rows of its segment as Q2's has of all together.
        assert extent((4, seg), T, Q4).tolist() == of_seg[:10]
        assert all(set(extent(w, T, Q4)) <= set(of_seg) for w in ids if w[1] == seg)
    # 30 rows of s6 slide further than 10 rows of s7.
    assert [max(w for w, seg in ids if seg == name) for name in ("s6", "s7")] == [18, 8]


def test_q2_and_q4_differ() -> None:
    T = {"seg": SEGMENTS}
    grouped = {(w, SEGMENTS[row]): 0 for w in windows(T, Q2) for row in extent(w, T, Q2)}
    for w in windows(T, Q2):
        for row in extent(w, T, Q2):
            grouped[w, SEGMENTS[row]] += 1
    partitioned = {w: len(extent(w, T, Q4)) for w in windows(T, Q4).tolist()}
    assert grouped[9, "s6"] + grouped[9, "s7"] == 10
    assert partitioned[9, "s6"] == 10 and partitioned[4, "s7"] == 10


READINGS = {"ts": [at(f"12:{m:02}:00") for m in (0, 3, 1, 6, 5, 9, 8, 4, 2, 7)]}  # out of order


def clock(ids: Any) -> list[int]:
    return [(int(w) - at("12:00:00")) // MINUTE for w in ids]


def test_q3_each_tuple_ends_a_window() -> None:
    assert clock(windows(READINGS, Q3)) == list(range(10))
    # (w − 300 s, w]: a tuple 300 seconds older is out.
    assert clock(np.take(READINGS["ts"], extent(at("12:06:00"), READINGS, Q3))) == [3, 6, 5, 4, 2]
    assert clock(wids(1, READINGS, Q3)) == [3, 4, 5, 6, 7]


def test_q3_variation_slides_by_n_tuples_in_arrival_order() -> None:
    assert clock(windows(READINGS, SLIDE_BY_N)) == [5, 7]
    assert clock(np.take(READINGS["ts"], extent(at("12:05:00"), READINGS, SLIDE_BY_N))) == [
        3, 1, 5, 4, 2,
    ]  # fmt: skip


def test_q5_slides_by_n_tuples_in_the_order_of_ts() -> None:
    assert clock(windows(READINGS, Q5)) == [4, 9]
    assert clock(np.take(READINGS["ts"], extent(at("12:04:00"), READINGS, Q5))) == [0, 3, 1, 4, 2]


def test_q5_does_not_depend_on_arrival_order() -> None:
    assert clock(windows({"ts": sorted(READINGS["ts"])}, Q5)) == [4, 9]
    assert clock(windows({"ts": sorted(READINGS["ts"])}, SLIDE_BY_N)) == [4, 9]


@pytest.mark.parametrize(
    ("S", "context"),
    [(Q1, "CF"), (Q2, "CF"), (Q4, "FCF"), (Q3, "FCB"), (SLIDE_BY_N, "FCB"), (Q5, "FCU")],
    ids=["Q1", "Q2", "Q4", "Q3", "Q3 by n", "Q5"],
)
def test_sections_4_and_6_classes_by_context(S: Window, context: str) -> None:
    assert S.context == context


def test_section_5_2_3_twelve_windows_are_active() -> None:
    S = hopping("60 minutes", every="5 minutes")
    assert len(wids(0, [at("12:34:56")], S)) == 12
    assert S.pane == 5 * MINUTE


def test_section_6_1_1_range_of_the_windows_of_a_tuple() -> None:
    # Ids of a tuple at s lie in [s, s + RANGE); the auxiliary extent s + RANGE is the first without.
    for row, s in enumerate(READINGS["ts"]):
        w = wids(row, READINGS, Q3)
        assert w.min() == s and w.max() < s + 300 * SECOND
        assert row in extent(s + 300 * SECOND - 1, READINGS, Q3)
        assert row not in extent(s + 300 * SECOND, READINGS, Q3)
