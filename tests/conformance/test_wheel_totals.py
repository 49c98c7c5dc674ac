"""Totals over the keys of a wheel, and aggregates made of its partials, agree with the definition."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.conformance.harness import assert_same, by_reference, ran, same
from tests.conformance.wheels import SCHEMA, can_be_cut, pair, play, steps
from tests.examples import examples
from tidemill import col
from tidemill.aggregates.layout import layout
from tidemill.core.errors import UserError
from tidemill.core.schema import schema
from tidemill.reference.wheels import RowWheel
from tidemill.wheels.files.buckets import BUCKETS, bucket_path
from tidemill.wheels.files.format import write_save
from tidemill.wheels.files.saving import described, save
from tidemill.wheels.wheel_store import WheelStore

OBJECTS = {
    "a": tm.median(col.v), "b": tm.sum(col.v), "c": tm.distinct_count(col.v, method="hll"),
    "d": tm.quantile(col.v, 0.4, method="kll"), "e": tm.distinct_count(col.v),
}  # fmt: skip
OTHERS = {"n": tm.count(col.x), "m": tm.mean(col.x), "s": tm.std(col.x), "t": tm.sum(col.x)}
randoms = st.randoms(use_true_random=False)


def check_totals(wheel: Any, reference: RowWheel, pick: random.Random, **asked: Any) -> None:
    store, grain = wheel._view.store, reference.grain
    of = None
    if asked:
        of = layout(tuple(asked["aggregates"].items()), schema(SCHEMA), reference.plan.never_null)
    names = [r.name for r in (of or reference.plan.layout).results]
    for _ in range(6):
        a = pick.randint(store.first - 2, store.now + 2)
        b = pick.randint(a, store.now + 4)
        try:
            got = wheel.query(a * grain, b * grain, total=True, **asked)
        except UserError as refused:
            assert "still hold" in str(refused)
            assert isinstance(wheel, WheelStore) or not can_be_cut(wheel, a, b)
            continue
        expected = reference.query(a * grain, b * grain, total=True, layout=of)
        for shown in (got, wheel.query([a * grain], [b * grain], total=True, **asked).to_pylist()[0]):
            shown = shown if isinstance(shown, dict) else {names[0]: shown}
            assert all(same(shown[n], expected[n]) for n in names), (a, b, shown, expected)
    expected = reference.query(store.first * grain, store.now * grain, total=True, layout=of)
    got = wheel.landmark(total=True, **asked)
    got = got if isinstance(got, dict) else {names[0]: got}
    assert all(same(got[n], expected[n]) for n in names), (got, expected)


# --- totals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("aggregates", "rings", "options"),
    [
        ("mean and more", "some kept", {}), ("sum", "kept", {"prefix": True}),
        ("sum", "dropped", {}), pytest.param("many", "sixes", {}, marks=pytest.mark.soak),
        pytest.param("sum", "kept", {"compress": 4}, marks=pytest.mark.soak),
        pytest.param("own", "kept", {}, marks=pytest.mark.soak),
    ],
)  # fmt: skip
@given(script=steps, start=st.integers(-30, 30), pick=randoms)
@examples(8)
def test_a_total_is_that_of_the_rows_of_all_keys(
    aggregates: str, rings: str, options: dict[str, Any], script: list[Any], start: int, pick: random.Random
) -> None:
    wheel, reference = pair(rings, aggregates, "two", start, **options)
    play(wheel, reference, script)
    check_totals(wheel, reference, pick)


@given(script=steps, pick=randoms)
@examples(6)
def test_totals_of_sketches_quantiles_and_distinct_counts(script: list[Any], pick: random.Random) -> None:
    wheel, reference = pair("some kept", OBJECTS, "one", -7)
    play(wheel, reference, script)
    check_totals(wheel, reference, pick)


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {"t": first + i % 40, "k": i % 7, "s": "ab"[i % 2], "v": i * i % 13, "x": i / 4 if i % 3 else None}
        for i in range(count)
    ]


def filled(aggregates: Any = "mean and more", keys: str = "one") -> tuple[tm.Wheel, RowWheel]:
    wheel, reference = pair("kept", aggregates, keys, 0)
    for row in rows(0, 300):
        reference.insert(row)
    wheel.insert(rows(0, 300))
    reference.advance_to(37)
    wheel.advance_to(37)
    return wheel, reference


def test_totals_of_saved_and_shared_wheels(tmp_path: Path) -> None:
    wheel, reference = filled()
    wheel.save(tmp_path / "saved")
    wheel.share(tmp_path / "shared")
    for opened in (tm.open_wheel(tmp_path / "saved"), tm.open_wheel(tmp_path / "shared")):
        check_totals(opened, reference, random.Random(1))
    wheel.insert(rows(40, 20))
    wheel.advance_to(60)
    [reference.insert(r) for r in rows(40, 20)]
    reference.advance_to(60)
    check_totals(tm.open_wheel(tmp_path / "shared"), reference, random.Random(2))


def test_totals_of_buckets(tmp_path: Path) -> None:
    """As Spark makes them: the keys are spread over saved wheels."""
    saves = {}
    for bucket in range(3):
        part, _ = pair("kept", "mean and more", "one", 0)
        part.insert([r for r in rows(0, 300) if r["k"] % 3 == bucket])
        part.advance_to(37)
        saves[str(bucket)] = save(part._state, bucket_path(tmp_path, bucket))
    facts = described(pair("kept", "mean and more", "one", 0)[0]._state)
    facts |= {BUCKETS: {"count": 3, "saves": saves, "until": 37}, "compress": False, "rows": 300}
    write_save(tmp_path, {}, facts)
    store, (_, reference) = tm.open_wheel(tmp_path), filled()
    assert isinstance(store, WheelStore)
    check_totals(store, reference, random.Random(3))
    check_totals(store, reference, random.Random(3), aggregates={"s": tm.std(col.x)})
    wheel = store.wheel()
    check_totals(wheel, reference, random.Random(4))


def test_a_total_of_some_keys_counts_each_once() -> None:
    wheel, _ = filled("sum")
    each = {k: wheel.query(0, 37, k) for k in range(7)}
    assert wheel.query(0, 37, key=[1, 4, 1, 99], total=True) == each[1] + each[4]
    assert wheel.query(0, 37, key={2}, total=True) == wheel.query(0, 37, key=2, total=True) == each[2]
    assert wheel.query(0, 37, key=[99], total=True) is None
    series = wheel.group_by(0, 37, 10, total=True)
    assert series.column_names == ["window_start", "window_end", "a"]
    assert sum(series["a"].to_pylist()) == wheel.landmark(total=True) == sum(each.values())
    assert wheel.latest(10, total=True) == wheel.query(27, 37, total=True)


def test_a_total_of_no_keys_is_the_answer() -> None:
    wheel, _ = filled("sum", "no keys")
    assert wheel.query(3, 30, total=True) == wheel.query(3, 30)


def test_a_total_that_leaves_int64_is_an_error_and_its_keys_are_not() -> None:
    wheel, _ = pair("kept", "sum", "one", 0)
    wheel.insert([{"t": 1, "k": k, "s": None, "v": (1 << 62) + 5, "x": None} for k in (1, 2)])
    wheel.advance_to(5)
    assert wheel.query(0, 5, 1) == (1 << 62) + 5
    with pytest.raises(UserError, match="overflow"):
        wheel.query(0, 5, total=True)
    wheel.insert([{"t": 6, "k": 3, "s": None, "v": -(1 << 62), "x": None}])
    wheel.advance_to(10)
    assert wheel.query(0, 10, total=True) == (1 << 62) + 10  # exact on the way


# --- aggregates of the same partials --------------------------------------------------------------


@given(script=steps, pick=randoms)
@examples(8)
def test_other_aggregates_of_the_same_partials(script: list[Any], pick: random.Random) -> None:
    held = {"n": tm.count(col.x), "t": tm.sum(col.x), "v": tm.var(col.x)}
    wheel, reference = pair("some kept", held, "one", 0)
    play(wheel, reference, script)
    check_totals(wheel, reference, pick, aggregates=OTHERS)
    now = wheel.watermark
    of = layout((("m", tm.mean(col.x)),), schema(SCHEMA))
    for key in (0, 1, 99):
        got = wheel.landmark(key, aggregates=tm.mean(col.x))
        assert same(got, reference.query(-99, now, (key,), layout=of)["m"])
    table = wheel.landmark(aggregates={"m": tm.mean(col.x)})
    assert table.column_names == ["k", "m"]


def asks(query: Any, wheel: Any, given_: list[Any]) -> None:
    assert_same(ran(query, wheel), by_reference(query, given_), query.schema)


def test_windows_of_a_mean_come_from_a_sum_and_a_count() -> None:
    wheel, reference = filled({"n": tm.count(col.x), "t": tm.sum(col.x)})
    stream = tm.stream("events", time="t", schema=SCHEMA)
    query = stream.group_by("k").window(tm.hopping(10, every=5)).agg(
        m=tm.mean(col.x), total=tm.sum(col.x)
    )  # fmt: skip
    asks(query, wheel, [r for r in reference.rows if r["t"] < 37])
    text = str(query.explain(events=wheel))
    assert "m: mean(col.x), made of sum(col.x) and count(col.x) in the wheel" in text
    assert "total: t=sum(col.x) of the wheel" in text
    landmark = stream.group_by("k").window(tm.landmark(5)).agg(m=tm.mean(col.x))
    asks(landmark, wheel, [r for r in reference.rows if r["t"] < 37])


def test_windows_of_a_deviation_come_from_a_variance_also_of_objects() -> None:
    wheel, reference = filled({"v": tm.var(col.x), "all": tm.median(col.v)})
    stream = tm.stream("events", time="t", schema=SCHEMA)
    query = stream.group_by("k").window(tm.tumbling(10)).agg(s=tm.std(col.x), q=tm.quantile(col.v, 0.9))
    asks(query, wheel, [r for r in reference.rows if r["t"] < 37])


@pytest.mark.parametrize(
    "held",
    [
        {"t": tm.sum(col.x), "rows": tm.count()},  # rows, not values: x may be null
        {"t": tm.sum(col.x)},  # whether there are values, not how many
        {"t": tm.sum(col.x), "n": tm.count(col.v)},
        {"n": tm.count(col.x)},
    ],
    ids=str,
)
def test_a_mean_needs_the_sum_and_the_count_of_the_same_values(held: dict[str, Any]) -> None:
    wheel = tm.Wheel(held, schema=SCHEMA, time="t", start=0, keys="k", granularities=[1])
    with pytest.raises(UserError, match=r"made of what the wheel holds.*got value=mean\(col.x\)"):
        wheel.query(0, 1, total=True, aggregates=tm.mean(col.x))
    stream = tm.stream("events", time="t", schema=SCHEMA)
    query = stream.group_by("k").window(tm.tumbling(5)).agg(m=tm.mean(col.x))
    with pytest.raises(UserError, match=r"made of the same partials, got m=mean\(col.x\)"):
        query.run(events=wheel)
