"""Replicas of wheels that go on: no row twice, none lost, in any order of merging."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.conformance.harness import assert_same, by_reference, ran, same
from tests.conformance.test_wheel_totals import check_totals
from tests.conformance.wheels import SCHEMA, pair, play, steps
from tests.examples import examples
from tidemill import col
from tidemill.core.errors import UserError
from tidemill.reference.wheels import RowWheel

randoms = st.randoms(use_true_random=False)
OBJECTS = {"a": tm.collect(col.v), "b": tm.distinct_count(col.v)}


def joined(references: list[RowWheel]) -> RowWheel:
    """What is known of all: the rows of all, below the earliest watermark."""
    first = references[0]
    now = min(r.watermark for r in references)
    return RowWheel(first.plan, first.grain, now, [row for r in references for row in r.rows])


def check_all(replicas: tm.Replicas, references: list[RowWheel], pick: random.Random) -> None:
    whole = joined(references)
    assert replicas.watermark == whole.watermark
    names = [r.name for r in whole.plan.layout.results]
    low = min(whole.watermark, *(r["t"] for r in whole.rows), 0) - 3
    for _ in range(5):
        a = pick.randint(low, whole.watermark + 1)
        b = pick.randint(a, whole.watermark + 5)
        for key in (0, 1, 2):
            got = replicas.query(a, b, key)
            got = got if isinstance(got, dict) else {names[0]: got}
            expected = whole.query(a, b, (key,))
            if "a" in got and isinstance(got["a"], list):
                got["a"], expected["a"] = sorted(got["a"]), sorted(expected["a"])
            assert all(same(got[n], expected[n]) for n in names), (a, b, key, got, expected)
    if len(names) == 1:
        check_totals(replicas, whole, pick)


@pytest.mark.parametrize("aggregates", ["sum", pytest.param("objects", marks=pytest.mark.soak)])
@given(
    scripts=st.lists(st.lists(steps, min_size=3, max_size=3), min_size=2, max_size=3), pick=randoms,
    starts=st.lists(st.integers(-9, 9), min_size=3, max_size=3),
)  # fmt: skip
@examples(8)
def test_states_that_come_in_any_order_and_again(
    aggregates: str, scripts: list[Any], pick: random.Random, starts: list[int]
) -> None:
    """Every wheel goes on; its states reach replicas late, twice, by others, or not at all."""
    kind = OBJECTS if aggregates == "objects" else aggregates
    made = [pair("kept", kind, "one", start) for _, start in zip(scripts, starts)]
    wheels, references = [w for w, _ in made], [r for _, r in made]
    one, other = tm.Replicas(wheels), tm.Replicas(reversed(wheels))
    for stage in zip(*scripts):
        for wheel, reference, script in zip(wheels, references, stage):
            play(wheel, reference, script)
            if pick.random() < 0.5:
                pick.choice([one, other]).merge(wheel)
        if pick.random() < 0.5:
            one.merge(other)
    older = tm.Replicas([wheels[0]])
    for wheel in pick.sample(wheels, len(wheels)):
        one.merge(wheel)
    assert not one.merge(pick.choice([*wheels, one]))  # nothing is new
    one.merge(other)  # what is old there changes nothing
    check_all(one, references, pick)
    other.merge(one)
    check_all(other, references, pick)
    assert older.merge(other) or len(wheels) == 1
    check_all(older, references, pick)


def made(*rows: tuple[int, int], until: int) -> tm.Wheel:
    wheel = pair("kept", "sum", "one", 0)[0]
    wheel.insert([{"t": t, "k": k, "s": None, "v": 1, "x": None} for t, k in rows])
    wheel.advance_to(until)
    return wheel


def test_what_one_has_closed_and_another_still_takes_is_not_lost() -> None:
    ahead, behind = made((1, 0), (8, 0), until=10), made((2, 0), until=4)
    both = tm.Replicas([ahead, behind])
    assert both.watermark == 4 and both.query(0, 10, 0) == 2  # as far as all are
    behind.insert([{"t": 6, "k": 0, "s": None, "v": 1, "x": None}])  # below the watermark of the other
    assert behind.stats()["left out"]["late"] == 0
    behind.advance_to(10)
    assert both.query(0, 10, 0) == 2  # until it is told
    assert both.merge(behind) and both.watermark == 10 and both.query(0, 10, 0) == 4
    whole = both.wheel()
    assert whole.query(0, 10, 0) == 4 and whole.stats()["rows"] == 4
    whole.insert([{"t": 11, "k": 0, "s": None, "v": 1, "x": None}])
    whole.advance_to(12)
    assert whole.query(0, 12, 0) == 5 and both.watermark == 10


def test_a_wheel_that_goes_on_from_a_save_follows_it_and_a_second_one_does_not(tmp_path: Path) -> None:
    wheel = made((1, 0), until=3)
    replicas = tm.Replicas([wheel])
    wheel.save(tmp_path)
    one, other = tm.open_wheel(tmp_path), tm.open_wheel(tmp_path)
    assert not replicas.merge(one)  # the same as was saved
    for opened in (one, other):
        opened.insert([{"t": 4, "k": 0, "s": None, "v": 1, "x": None}])
        opened.advance_to(6)
    assert replicas.merge(one) and replicas.query(0, 6, 0) == 2
    with pytest.raises(UserError, match=r"a state of wheel .* that follows"):
        replicas.merge(other)
    wheel.advance_to(5)  # the first one goes on, too
    with pytest.raises(UserError, match="two continuations of one save"):
        replicas.merge(wheel)
    assert replicas.query(0, 6, 0) == 2


def test_rows_that_are_in_two_wheels_are_refused() -> None:
    a, b, c = (made((t, 0), until=5) for t in (1, 2, 3))
    a.merge(b)
    with pytest.raises(UserError, match="rows would count twice"):
        tm.Replicas([a, b])
    replicas = tm.Replicas([a, c])
    assert replicas.query(0, 5, 0) == 3
    with pytest.raises(UserError, match="rows would count twice"):
        replicas.merge(b)
    assert replicas.query(0, 5, 0) == 3


def row(t: int) -> list[dict[str, Any]]:
    return [{"t": t, "k": 0, "s": None, "v": 1, "x": None}]


@pytest.mark.parametrize("others", [0, 1])
def test_all_as_one_wheel_is_a_wheel_of_its_own(others: int) -> None:
    """What it takes and what the first one takes are not taken for states of one wheel."""
    a, c = made(until=0), made(until=0)
    whole = tm.Replicas([a, *(made(until=0) for _ in range(others))]).wheel()
    assert whole.id.split("@")[0] != a.id.split("@")[0]
    for wheel, t in ((a, 1), (whole, 2)):
        wheel.insert(row(t))
        wheel.advance_to(10)
    assert c.merge(a)
    with pytest.raises(UserError, match="they would count twice"):
        c.merge(whole)
    assert c.query(0, 10, 0) == 1
    with pytest.raises(UserError, match="rows would count twice"):
        tm.Replicas([whole]).merge(a)
    alone = tm.Replicas([whole])
    whole.insert(row(12))
    assert alone.merge(whole) and not alone.merge(whole)


def test_the_only_writer_goes_on_from_its_save(tmp_path: Path) -> None:
    made(until=0).save(tmp_path)
    wheel, second = tm.open_wheel(tmp_path), tm.open_wheel(tmp_path)
    wheel.insert(row(1))
    replicas, other = tm.Replicas([wheel]), tm.Replicas([wheel])
    assert not replicas.merge(wheel) and not replicas.merge(other)
    wheel.insert(row(2))
    wheel.advance_to(5)
    assert replicas.merge(wheel) and replicas.query(0, 5, 0) == 2
    wheel.save(tmp_path)
    assert not replicas.merge(tm.open_wheel(tmp_path))
    assert other.merge(replicas) and not other.merge(tm.open_wheel(tmp_path))
    third = tm.open_wheel(tmp_path)
    for one in (wheel, second, third):
        one.insert(row(7))
        one.advance_to(9)
    assert replicas.merge(wheel) and replicas.query(0, 9, 0) == 3
    for fork in (second, third):
        with pytest.raises(UserError, match="two continuations of one save"):
            replicas.merge(fork)


def test_a_shared_reader_is_refused_with_what_to_do(tmp_path: Path) -> None:
    wheel = made((1, 0), until=3)
    wheel.share(tmp_path / "shared")
    with pytest.raises(UserError, match="save the shared wheel where it is written, and open the save"):
        tm.Replicas([tm.open_wheel(tmp_path / "shared")])


def test_explain_has_the_plan_of_each_wheel() -> None:
    """One is asked for all it has, the other for a part: as far as both are."""
    ahead, behind = made((1, 0), (7, 0), until=10), made((2, 0), until=5)
    explained = tm.Replicas([ahead, behind]).explain(0, 9)
    names = [w.id.split("@")[0] for w in (ahead, behind)]
    plans = {n: (e.plan, [(s.start, s.end) for s in e.steps]) for n, e in explained.replicas.items()}
    assert plans == {names[0]: ("one ring", [(0, 5)]), names[1]: ("landmark", [(None, None)])}
    assert explained.operations == 1 and all(f"wheel {n}" in explained.sections for n in names)


def test_only_wheels_of_one_kind() -> None:
    with pytest.raises(UserError, match="at least one wheel"):
        tm.Replicas([])
    with pytest.raises(UserError, match="must be equal"):
        tm.Replicas([made(until=1), pair("kept", "sum", "two", 0)[0]])
    with pytest.raises(UserError, match="expected a wheel, or replicas"):
        tm.Replicas([made(until=1)]).merge("b")  # type: ignore[arg-type]


def test_replicas_as_an_input_of_a_query() -> None:
    a, b = made((1, 0), (7, 1), until=12), made((2, 0), (8, 2), until=10)
    query = (
        tm.stream("events", time="t", schema=SCHEMA).group_by("k").window(tm.tumbling(5)).agg(a=tm.sum(col.v))
    )
    rows = [{"t": t, "k": k, "s": None, "v": 1, "x": None} for t, k in ((1, 0), (7, 1), (2, 0), (8, 2))]
    assert_same(ran(query, tm.Replicas([a, b])), by_reference(query, rows), query.schema)
