"""Agrees with the definition: the local engine against the reference, row by row."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.conformance.cases import (
    ARRIVAL,
    COMBINATIONS,
    COUNTING_ROWS,
    EVERY,
    FAMILIES,
    ROWS,
    STREAM,
    TYPICAL,
    WINDOWS,
    Row,
    ask,
    marks_of,
    seeded,
)  # fmt: skip
from tests.conformance.harness import (
    HASTE,
    arrivals,
    assert_same,
    by_reference,
    in_batches,
    locally,
    split,
)  # fmt: skip
from tests.examples import examples
from tidemill import col
from tidemill.aggregates.registry import AGGREGATES

ORDERS = ("sorted", "jittered", "shuffled")


@pytest.mark.parametrize(
    ("window", "family"),
    [pytest.param(*case, marks=marks_of(*case)) for case in COMBINATIONS],
)
def test_every_window_and_family(window: str, family: str) -> None:
    query = ask(WINDOWS[window], family)
    assert_same(locally(query, TYPICAL), by_reference(query, TYPICAL), query.schema)


@pytest.mark.parametrize("window", EVERY)
@given(
    rows=ROWS, order=st.sampled_from(ORDERS), speed=st.sampled_from(list(HASTE)),
    promises=st.booleans(), pick=st.randoms(use_true_random=False),
)  # fmt: skip
@examples(8)
def test_any_rows_in_any_order_and_split(
    window: str, rows: list[Row], order: str, speed: str, promises: bool, pick: random.Random
) -> None:
    query = ask(WINDOWS[window], "few")
    batches = split(arrivals(rows, "t", pick)[order], pick)
    got = in_batches(query, batches, promises=promises, speed=speed)
    assert_same(got, by_reference(query, rows), query.schema)


@pytest.mark.parametrize("window", [w for w in EVERY if w.values[0] not in COUNTING_ROWS])
@given(rows=ROWS, order=st.sampled_from(ORDERS), pick=st.randoms(use_true_random=False))
@examples(3, of=5)
def test_aggregates_in_order_of_time_whatever_the_order_of_arrival(
    window: str, rows: list[Row], order: str, pick: random.Random
) -> None:
    query = ask(WINDOWS[window], "paths")
    batches = split(arrivals(rows, "t", pick)[order], pick)
    got = in_batches(query, batches, promises=True, speed="eager")
    assert_same(got, by_reference(query, rows), query.schema)


@pytest.mark.parametrize("window", ARRIVAL)
@given(rows=ROWS, speed=st.sampled_from(list(HASTE)), pick=st.randoms(use_true_random=False))
@examples(5, of=8)
def test_windows_by_arrival_in_any_split(
    window: str, rows: list[Row], speed: str, pick: random.Random
) -> None:
    query = ask(ARRIVAL[window], "few")
    got = in_batches(query, split(rows, pick), promises=True, speed=speed)
    assert_same(got, by_reference(query, rows), query.schema)


@pytest.mark.parametrize("rows", [[], TYPICAL[:1]], ids=["no row", "one row"])
@pytest.mark.parametrize("window", WINDOWS)
def test_next_to_nothing(window: str, rows: list[Row]) -> None:
    query = ask(WINDOWS[window], "few")
    got = locally(query, rows)
    assert_same(got, by_reference(query, rows), query.schema)
    assert bool(got) == (bool(rows) and window not in COUNTING_ROWS)


@pytest.mark.parametrize("family", ["counting", "sums", "moments", "ordered", "holistic"])
def test_rows_in_which_every_value_is_null(family: str) -> None:
    rows = [{**row, "x": None, "v": None, "b": None, "s": None} for row in TYPICAL[:20]]
    query = ask(WINDOWS["hopping"], family)
    assert_same(locally(query, rows), by_reference(query, rows), query.schema)


def test_a_row_is_skipped_where_any_argument_is_null() -> None:
    pick = random.Random(5)
    rows = [
        {**row, "x": pick.choice([None, 1.5, 2.0, -3.0]), "v": pick.choice([None, 1, 2, 7])}
        for row in TYPICAL
    ]
    query = STREAM.group_by("k").window(tm.hopping(6, every=2)).agg(
        cov=tm.covariance(col.x, col.v), arg=tm.arg_max(col.v, col.x), xs=tm.count(col.x)
    )  # fmt: skip
    assert_same(locally(query, rows), by_reference(query, rows), query.schema)


@given(rows=ROWS, pick=st.randoms(use_true_random=False))
@examples(8)
def test_several_windows_in_one_query(rows: list[Row], pick: random.Random) -> None:
    query = STREAM.group_by("k").window(
        short=tm.tumbling(4), long=tm.hopping(12, every=4, origin=-2), all=tm.landmark(8, start=-20),
        sampled=tm.hopping(2, every=6),
    ).agg(n=tm.count(), total=tm.sum(col.v), last=tm.last(col.x))  # fmt: skip
    expected = by_reference(query, rows)
    assert_same(locally(query, rows), expected, query.schema)
    shuffled = split(arrivals(rows, "t", pick)["jittered"], pick)
    assert_same(in_batches(query, shuffled, promises=True, speed="eager"), expected, query.schema)


def test_windows_that_follow_the_data_side_by_side() -> None:
    query = STREAM.group_by("k").window(
        each=tm.per_event(6), runs=tm.session(3), far=tm.per_event(9, every=2, by="rank")
    ).agg(n=tm.count(), top=tm.max(col.x))  # fmt: skip
    assert_same(locally(query, TYPICAL), by_reference(query, TYPICAL), query.schema)


@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize("origin", [None, -7, 0, 3, 100])
@pytest.mark.parametrize(("length", "every"), [(4, 4), (6, 4), (12, 4), (4, 12)])
def test_grids_with_and_without_an_origin(
    length: int, every: int, origin: int | None, filled: bool
) -> None:
    window = tm.hopping(length, every=every, origin=origin, fill_empty=filled)
    query = STREAM.group_by("k").window(window).agg(n=tm.count(), top=tm.max(col.v))
    rows = seeded(25, seed=length + every, span=60)
    assert_same(locally(query, rows), by_reference(query, rows), query.schema)


@pytest.mark.parametrize(
    "window",
    [
        tm.rows(4, every=2, fill_empty=True),
        tm.rows(4, every=6, partition_by="k", fill_empty=True),
        tm.rows(4, every=6, partition_by=["k", "b"]),
        tm.rows(4, every=2, partition_by="b"),
        tm.landmark(6, start=-30, fill_empty=True),
        tm.tumbling(4, on="u", fill_empty=True),
        tm.session(3, partition_by="b"),
        tm.session(3, on="u"),
        tm.per_event(5, partition_by="b"),
        tm.per_event(5, every=2, by="rank", partition_by="b"),
        tm.per_event(5, on="u"),
        tm.per_event(5, every=2, on="u", order_by="n"),
    ],
    ids=str,
)
def test_options_of_windows(window: tm.Window) -> None:
    query = STREAM.group_by("k").window(window).agg(n=tm.count(), top=tm.max(col.v))
    assert_same(locally(query, TYPICAL), by_reference(query, TYPICAL), query.schema)


def test_families_cover_every_aggregate() -> None:
    used = {(family, a.name) for family, each in FAMILIES.items() for a in each.values()}
    elsewhere = {"median", "distinct_sketch", "quantile_sketch"}  # a quantile; test_sketches.py
    built_in = {(e.family, e.name) for e in AGGREGATES.values() if e.name not in elsewhere}
    assert built_in - used == set()
