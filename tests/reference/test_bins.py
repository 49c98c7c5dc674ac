"""The one-pass algorithm of paper 003, section 6.1, against its figure and against the definition."""

from __future__ import annotations

import operator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.core.errors import UserError
from tidemill.core.time import BEGINNING
from tidemill.reference.bins import Bins
from tidemill.windows.semantics import extent, windows
from tidemill.windows.spec import per_event

FOLDS: dict[str, tuple[Any, Any, Any]] = {
    "count": (lambda x: 1, operator.add, lambda: 0),
    "sum": (lambda x: x, operator.add, lambda: 0),
    "max": (lambda x: x, max, lambda: -1_000),
}


def counting(range: int, **options: Any) -> Bins[None, int]:
    return Bins(range, *FOLDS["count"], **options)


def test_figure_4_bin_walk() -> None:
    # As drawn: s1 < s5 < s2 < s3 < s1+i < s5+i < s4 < s2+i, with RANGE i = 10.
    i, s1, s5, s2, s3, s4 = 10, 0, 2, 4, 6, 13
    wid = {f"S{n}": s for n, s in zip("12345", (s1, s2, s3, s4, s5))}
    wid |= {f"E{n}": wid[f"S{n}"] + i for n in "12345"} | {"init": BEGINNING}
    name = {position: label for label, position in wid.items()}
    bins = counting(i)

    def held() -> dict[str, int]:
        return {name[bin.wid]: bin.value for bin in bins.bins}

    assert held() == {"init": 0}
    bins.insert(s1, None)  # (a)
    assert held() == {"init": 0, "S1": 1, "E1": 0}
    bins.insert(s2, None)  # (b)
    assert held() == {"init": 0, "S1": 1, "S2": 2, "E1": 1, "E2": 0}
    bins.insert(s3, None)  # (c)
    assert held() == {"init": 0, "S1": 1, "S2": 2, "S3": 3, "E1": 2, "E2": 1, "E3": 0}
    bins.insert(s4, None)  # (d): S4 starts from E1, without t1
    assert held() == {
        "init": 0, "S1": 1, "S2": 2, "S3": 3, "E1": 2, "S4": 3, "E2": 2, "E3": 1, "E4": 0,
    }  # fmt: skip
    bins.insert(s5, None)  # (e): out of order
    assert held() == {
        "init": 0, "S1": 1, "S5": 2, "S2": 3, "S3": 4, "E1": 3, "E5": 2, "S4": 3, "E2": 2, "E3": 1,
        "E4": 0,
    }  # fmt: skip
    assert list(held()) == sorted(held(), key=wid.__getitem__)
    # Later values are greater than s2: S1, S5 and S2 are out, S2 stays to be split.
    assert bins.punctuate(s2 + 1) == [(s1, 1), (s5, 2), (s2, 3)]
    assert held() == {"S2": 3, "S3": 4, "E1": 3, "E5": 2, "S4": 3, "E2": 2, "E3": 1, "E4": 0}
    assert bins.punctuate(100) == [(s3, 4), (s4, 3)]
    assert held() == {"E4": 0}


def test_figure_5_only_bins_in_between_are_updated() -> None:
    bins = counting(10)
    for t in (0, 20):
        bins.insert(t, None)
    bins.insert(15, None)  # spans the bins [15, 25): S20 is in it, S0, E0 and E20 are not
    assert {bin.wid: bin.value for bin in bins.bins[1:]} == {
        0: 1,
        10: 0,
        15: 1,
        20: 2,
        25: 1,
        30: 0,
    }


def test_ties_end_one_window() -> None:
    bins = counting(10)
    for t in (5, 5, 15, 5):  # the end of 5 is where 15 starts
        bins.insert(t, None)
    assert [(bin.wid, bin.value) for bin in bins.bins[1:]] == [(5, 3), (15, 1), (25, 0)]
    assert bins.punctuate(16) == [(5, 3), (15, 1)]


def test_state_is_purged_with_each_punctuation() -> None:
    bins = counting(10)
    for t in range(1_000):
        bins.insert(t, None)
        bins.punctuate(t)
    assert len(bins.bins) < 20


def test_a_punctuation_is_a_promise() -> None:
    bins = counting(10)
    bins.insert(5, None)
    assert bins.punctuate(6) == [(5, 1)]
    assert bins.punctuate(6) == bins.punctuate(-100) == []  # it takes nothing back
    with pytest.raises(UserError, match="bins: expected no tuple below 6, got one at 5"):
        bins.insert(5, None)
    bins.insert(6, None)
    assert bins.punctuate(7) == [(6, 2)]


def test_section_6_1_3_by_row_num() -> None:
    bins = counting(10, every=2)
    for t in (4, 1, 3, 2):
        bins.insert(t, None)
    assert bins.punctuate(10) == [(1, 1), (2, 2)]


def test_section_6_1_3_by_rank() -> None:
    bins = counting(10, every=2, by="rank")
    for t in (4, 1, 3, 2):
        bins.insert(t, None)
    assert bins.punctuate(10) == [(2, 2), (4, 4)]
    for t in (11, 10):
        bins.insert(t, None)
    assert bins.punctuate(20) == [
        (11, 5)
    ]  # the count goes on over what was purged: 2, 3, 4, 10, 11


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize(
    ("every", "by"), [(1, "arrival"), (2, "arrival"), (3, "arrival"), (2, "rank")]
)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_bins_equal_the_definition(fold: str, every: int, by: str, data: st.DataObject) -> None:
    lift, combine, identity = FOLDS[fold]
    length = data.draw(st.integers(1, 12), label="range")
    times = data.draw(st.lists(st.integers(-20, 20), max_size=20), label="times")
    values = data.draw(st.lists(st.integers(-9, 9), min_size=len(times), max_size=len(times)))
    bins, emitted = Bins(length, lift, combine, identity, every=every, by=by), []
    for row, (t, x) in enumerate(zip(times, values)):
        bins.insert(t, x)
        if later := times[row + 1 :]:
            promise = data.draw(st.none() | st.integers(-25, min(later)), label="punctuation")
            emitted += [] if promise is None else bins.punctuate(promise)
    emitted += bins.punctuate(1_000)

    def value(rows: list[int]) -> Any:
        partial = identity()
        for row in rows:
            partial = combine(partial, lift(values[row]))
        return partial

    S = per_event(length, every=every, by=by)
    assert emitted == [(w, value(extent(w, times, S))) for w in windows(times, S).tolist()]
