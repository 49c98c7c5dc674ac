"""Local operations against lists; traced and opaque functions give the same."""

from __future__ import annotations

import gc
import random
import threading
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import functions as F

import tidemill as tm
from tidemill.core.errors import UserError
from tidemill.spark import private
from tidemill.spark.dia import DIA, Record, from_frame, generate

LAYOUT = [[3, 1], [], [4, 1, 5], [9], [2, 6]]
FLAT = [x for part in LAYOUT for x in part]


def runs(dia: DIA) -> str:
    return dia._node.runs


def test_generate(spark: Any) -> None:
    assert generate(spark, 10, parts=3).all_gather() == list(range(10))
    assert generate(spark, 0).all_gather() == []
    squares = generate(spark, 4, lambda i: (i, i * i))
    assert runs(squares) == "JVM"
    assert squares.all_gather() == [(i, i * i) for i in range(4)]
    assert generate(spark, 3, lambda i: f"<{i}>").all_gather() == ["<0>", "<1>", "<2>"]


@pytest.mark.parametrize("n", [-1, 1.5, True, "3"])
def test_generate_refuses(spark: Any, n: Any) -> None:
    with pytest.raises(UserError, match="generate: expected a number of elements"):
        generate(spark, n)


def test_chains_of_traced_and_opaque_functions(dia_of: Any) -> None:
    numbers = dia_of(LAYOUT)
    traced = numbers.map(lambda x: x * 2 + 1).filter(lambda x: x > 5).flat_map(lambda x: [x, -x])
    assert [n.runs for n in traced._node.walk()][3:] == ["JVM", "JVM", "JVM"]
    want = [y for x in FLAT if x * 2 + 1 > 5 for y in (x * 2 + 1, -(x * 2 + 1))]
    assert traced.all_gather() == want
    opaque = (
        numbers.map(lambda x: int(str(x)) * 2 + 1)
        .filter(lambda x: bool(x > 5))
        .flat_map(lambda x: [x, -x] if x else [])
    )
    assert runs(opaque) == "Arrow batches"
    assert opaque.all_gather() == want
    # Python after Python is one pass over a batch.
    plan = opaque.to_frame()._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("MapInArrow") == 1


def test_elements_of_every_shape(spark: Any) -> None:
    base = generate(spark, 3, parts=2)
    record = base.map(lambda i: {"a": i, "b": {"c": (i, i + 1)}})
    assert record.all_gather()[1] == {"a": 1, "b": {"c": (1, 2)}}
    assert isinstance(record.all_gather()[0].b, Record)
    inner = record.map(lambda e: (e.b.c[1], e["a"]))
    assert runs(inner) == "JVM"
    assert inner.all_gather() == [(1, 0), (2, 1), (3, 2)]
    opaque = record.map(lambda e: [e.b.c[1]] * int(e["a"]))
    assert opaque.all_gather() == [[], [2], [3, 3]]
    assert opaque.map(len).all_gather() == [0, 1, 2]
    whole = record.map(lambda e: (e, e.a))
    assert runs(whole) == "JVM"
    assert whole.all_gather()[2] == ({"a": 2, "b": {"c": (2, 3)}}, 2)
    start = datetime(2024, 1, 1, tzinfo=timezone.utc)
    times = base.map(lambda i: (start + timedelta(hours=int(i)), timedelta(seconds=int(i))))
    later = times.map(lambda e: (e[0] + e[1], e[1]))
    assert runs(later) == "JVM"
    want = [(start + timedelta(hours=i, seconds=i), timedelta(seconds=i)) for i in range(3)]
    assert later.all_gather() == want
    assert later.map(lambda e: e[0].hour() if callable(e[0].hour) else e[0].hour).all_gather() == [
        0,
        1,
        2,
    ]
    raw = base.map(lambda i: (bytes([i]), i > 1, None if i else 2.5), returns=(bytes, bool, float))
    assert raw.all_gather() == [(b"\0", False, 2.5), (b"\1", False, None), (b"\2", True, None)]


def test_functions_that_tracing_would_get_wrong_stay_opaque(spark: Any) -> None:
    dia = generate(spark, 4)
    table, some = {1: "one"}, {2, 3}
    rng = random.Random(5)
    for function, reason in [
        (lambda x: table.get(x, "?"), "no hash"),
        (lambda x: x in some, "no hash"),
        (lambda x: 0 if x is None else x, "asks what a value is"),
        (lambda x: isinstance(x, int), "isinstance"),
        (lambda x: f"{x!r}", "formats"),
        (lambda x: x if x > 1 else 0, "truth value"),
        (lambda x: rng.random() if True else x, "something else each time"),
        (lambda x: str(x), "no text"),
        (lambda x: len([x]) and [x], "a list"),
    ]:
        made = dia.map(function)
        assert runs(made) == "Arrow batches"
        assert reason in made._node.why
        if reason != "something else each time":
            assert made.all_gather() == [function(i) for i in range(4)]


def test_rules_of_expressions_hold_where_functions_are_traced(spark: Any) -> None:
    dia = generate(spark, 3)
    assert dia.map(lambda x: 6 // x).all_gather() == [None, 6, 3]
    with pytest.raises(Exception, match="OVERFLOW"):
        dia.map(lambda x: x + (2**63 - 2)).all_gather()
    assert dia.map(lambda x: tm.when(x > 1).then("b").otherwise("a")).all_gather() == [
        "a",
        "a",
        "b",
    ]


def test_types_are_read_off_elements_or_given(spark: Any) -> None:
    dia = generate(spark, 3)
    with pytest.raises(UserError, match="declare it with returns="):
        dia.map(lambda x: None)
    assert dia.map(lambda x: None, returns=int).all_gather() == [None] * 3
    with pytest.raises(UserError, match=r"map: expected elements of one type .* string and int64"):
        dia.map(lambda x: int(x) if x else "a")
    with pytest.raises(UserError, match="no element to look at"):
        generate(spark, 0).map(str)
    assert generate(spark, 0).map(str, returns=str).all_gather() == []
    late = generate(spark, 50, parts=2).map(lambda x: int(x) if x < 40 else "a")
    with pytest.raises(UserError, match="map: expected elements of int64, got 'a'"):
        late.all_gather()
    assert dia.map(lambda x: x, returns=float).all_gather() == [0.0, 1.0, 2.0]


def test_what_a_function_raises_is_told(spark: Any) -> None:
    with pytest.raises(
        UserError, match=r"map: a lambda raised ZeroDivisionError: .*, got element 0"
    ):
        generate(spark, 3).map(lambda x: 1 // int(x))
    late = generate(spark, 50).map(lambda x: 1 // (int(x) - 30))
    with pytest.raises(
        UserError, match=r"map: a lambda raised ZeroDivisionError: .*got element 30"
    ):
        late.all_gather()
    with pytest.raises(
        UserError, match=r"a field of \['price'\], got 'prise' — did you mean 'price'"
    ):
        generate(spark, 3).map(lambda x: {"price": x}).map(lambda e: e.prise)


def test_flat_map_in_the_jvm(spark: Any) -> None:
    lines = generate(spark, 2).map(lambda i: "a b" if i else "", returns=str)
    words = lines.flat_map(lambda line: line.split(" "))
    assert runs(words) == "JVM"
    assert words.all_gather() == ["", "a", "b"]
    pairs = generate(spark, 2).flat_map(lambda i: [(i, "x"), (i + 1, "y")])
    assert runs(pairs) == "JVM"
    assert pairs.all_gather() == [(0, "x"), (1, "y"), (1, "x"), (2, "y")]

    def twice(i: Any) -> Any:
        yield i
        yield i

    assert generate(spark, 2).flat_map(twice).all_gather() == [0, 0, 1, 1]
    assert generate(spark, 3).flat_map(lambda i: range(i)).all_gather() == [0, 0, 1]


def test_samples_and_unions(spark: Any, dia_of: Any) -> None:
    dia = generate(spark, 1000, parts=4)
    some = dia.bernoulli_sample(0.3, seed=1).all_gather()
    assert 200 < len(some) < 400
    assert some == sorted(some) and set(some) <= set(range(1000))
    assert dia.bernoulli_sample(0.3, seed=1).all_gather() == some
    assert dia.bernoulli_sample(0).size() == 0
    with pytest.raises(UserError, match="bernoulli_sample: expected a probability"):
        dia.bernoulli_sample(2)
    drawn = dia.sample(10, seed=2).all_gather()
    assert len(set(drawn)) == 10
    assert sorted(dia.sample(2000).all_gather()) == list(range(1000))
    both = dia_of(LAYOUT).union(dia_of([[7]]), dia_of([[8]]))
    assert sorted(both.all_gather()) == sorted([*FLAT, 7, 8])
    with pytest.raises(UserError, match="union: expected elements of int64"):
        dia.union(dia.map(lambda x: (x,)))


def test_cache_collapse_keep_execute(spark: Any) -> None:
    noise = generate(spark, 20, parts=3).map(lambda x: random.random())
    cached = noise.cache()
    assert cached.all_gather() == cached.all_gather()
    assert noise.all_gather() != noise.all_gather()
    done = noise.execute()
    assert done.all_gather() == done.all_gather() == noise.all_gather()
    assert [n.op for n in done._node.walk()] == ["execute"]
    assert generate(spark, 3).keep().collapse().map(lambda x: x + 1).all_gather() == [1, 2, 3]


def test_functions_are_what_they_were_when_given(spark: Any) -> None:
    dia = generate(spark, 2)
    for i in range(3):
        dia = dia.map(lambda x: int(x) * 10 + i)  # noqa: B023 - the point of it
    assert dia.all_gather() == [12, 1012]
    keyed = [generate(spark, 2).sort(lambda x: -int(x) * sign) for sign in (1, -1)]  # noqa: B023
    assert [d.all_gather() for d in keyed] == [[1, 0], [0, 1]]


def forget() -> None:
    gc.collect()
    private.await_released()


def test_java_is_not_called_where_python_forgets() -> None:
    """Python may forget a frame inside a call of Java, whose connection is then in use."""
    threads = []

    class Frame:
        _jdf = SimpleNamespace(unpersist=lambda wait: threads.append(threading.get_ident()))

    private.unpersist_with(Frame())  # type: ignore[arg-type]
    forget()
    assert len(threads) == 1 and threads[0] != threading.get_ident()


def test_what_is_kept_goes_with_the_dia(spark: Any) -> None:
    persistent = spark.sparkContext._jsc.getPersistentRDDs
    forget()
    before = persistent().size()
    dia = generate(spark, 5)
    for _ in range(3):
        dia = dia.map(lambda x: x + 1).execute()
        forget()
        assert persistent().size() == before + 1
    assert dia.all_gather() == [3, 4, 5, 6, 7]
    del dia
    forget()
    assert persistent().size() == before


def test_names_that_spark_cannot_tell_apart(spark: Any) -> None:
    with pytest.raises(UserError, match="map: expected fields that differ by more than case"):
        generate(spark, 2).map(lambda x: {"a": x, "A": x})


def test_frames(spark: Any) -> None:
    df = spark.range(0, 6, 1, 3).select(
        F.col("id").cast("int").alias("a"), F.lit("x").alias("unit.price"),
        F.lit("2024-01-02").cast("date").alias("d"),
    )  # fmt: skip
    dia = from_frame(df).map(lambda e: {"n": e.a + 1, "s": e["unit.price"], "d": e.d})
    assert runs(dia) == "JVM"
    day = datetime(2024, 1, 2, tzinfo=timezone.utc)
    assert dia.all_gather()[5] == {"n": 6, "s": "x", "d": day}
    opaque = from_frame(df).map(lambda e: str(e["unit.price"]))
    assert opaque.all_gather() == ["x"] * 6
    assert dia.to_frame().columns == ["n", "s", "d"]
    with pytest.raises(UserError, match="from_frame"):
        from_frame(spark.sql("select interval 1 month as x"))


def test_what_is_null_inside_an_element_stays_null(dia_of: Any) -> None:
    dia = dia_of([[(1, None), (2, (3, 4))]], (int, (int, int)))
    for same in (dia.map(lambda e: e), dia.zip_with_index().map(lambda e: e[1])):
        assert same.all_gather() == [(1, None), (2, (3, 4))]
        assert runs(same) == "JVM"


@pytest.mark.soak
def test_elements_are_the_same_between_steps_in_one_pass_as_if_they_were_kept(spark: Any) -> None:
    mixed = generate(spark, 3).map(lambda i: i / 2 if i % 2 else int(i))
    naive = generate(spark, 1).map(lambda i: datetime(2024, 1, 1) if i == 0 else None)
    for dia in (mixed, naive):
        assert dia.map(lambda x: str(x)).all_gather() == dia.cache().map(lambda x: str(x)).all_gather()
    assert mixed.map(lambda x: str(x)).all_gather() == ["0.0", "0.5", "2.0"]


@pytest.mark.soak
def test_a_random_filter_is_drawn_once_for_both_passes(spark: Any) -> None:
    some = generate(spark, 2000, parts=3).filter(lambda i: random.random() < 0.5)
    numbered = some.zip_with_index().all_gather()
    assert [i for i, _ in numbered] == list(range(len(numbered)))
    assert 0 < len(numbered) < 2000


def test_functions_that_catch_what_tracing_raises(spark: Any) -> None:
    def parse(text: Any) -> int:
        try:
            return int(text)
        except Exception:
            return -1

    words = generate(spark, 3).map(lambda i: ["7", "x", "9"][i], returns=str)
    assert words.map(parse).all_gather() == [7, -1, 9]


@pytest.mark.soak
def test_a_sample_is_the_same_in_every_plan(spark: Any) -> None:
    rows = generate(spark, 3000, lambda i: (i * 7919 % 3001, i), parts=4)
    some = rows.sort(lambda e: e[0]).bernoulli_sample(0.5, seed=1)
    size = some.size()
    assert 1200 < size < 1800
    assert some.map(lambda e: e[0] + e[1]).to_arrow().num_rows == some.to_arrow().num_rows == size
