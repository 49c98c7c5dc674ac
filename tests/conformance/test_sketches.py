"""Sketches: how near their estimates are, and that those of either side merge with the other's."""

from __future__ import annotations

import random
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.harness import by_reference
from tidemill import col

SCHEMA = {"t": "int64", "v": "int64", "s": "string", "x": "float64"}
STREAM = tm.stream("s", time="t", schema=SCHEMA)
SIZE, DIFFERENT = 20_000, 8_000


def table(first: int = 0) -> pa.Table:
    pick = random.Random(first)
    values = [first + pick.randrange(DIFFERENT) for _ in range(SIZE)]
    return pa.table(
        {"t": [n % 60 for n in range(SIZE)], "v": values, "s": [f"u{v}" for v in values],
         "x": [float(v) for v in values]}
    )  # fmt: skip


ESTIMATES = STREAM.window(tm.hopping(60, every=20, origin=0)).agg(
    ints=tm.distinct_count(col.v, method="hll"), exact=tm.distinct_count(col.v),
    texts=tm.distinct_count(col.s, method="hll"),
    low=tm.quantile(col.x, 0.1, method="kll"), mid=tm.median(col.x, method="kll"),
)  # fmt: skip
SKETCHES = STREAM.window(tm.tumbling(60)).agg(
    hll=tm.distinct_sketch(col.v), hll_s=tm.distinct_sketch(col.s), kll=tm.quantile_sketch(col.x)
)


def near(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        for name in ("ints", "texts"):
            assert row[name] == pytest.approx(row["exact"], rel=0.05)
        assert row["low"] == pytest.approx(0.1 * DIFFERENT, abs=0.03 * DIFFERENT)
        assert row["mid"] == pytest.approx(0.5 * DIFFERENT, abs=0.03 * DIFFERENT)


def test_estimates_are_near_locally() -> None:
    near(ESTIMATES.run(s=table()).to_pylist())


def test_estimates_are_near_on_spark(spark: Any) -> None:
    near(ESTIMATES.on_spark(spark).run(s=spark.createDataFrame(table())).toArrow().to_pylist())


def test_sketches_of_both_sides_merge_on_either(spark: Any) -> None:
    from pyspark.sql import functions as F

    (ours,) = SKETCHES.run(s=table()).to_pylist()
    df = SKETCHES.on_spark(spark).run(s=spark.createDataFrame(table(first=DIFFERENT // 2)))
    (theirs,) = df.toArrow().to_pylist()
    names = ("hll", "hll_s", "kll")
    pairs = [tuple(bytes(row[n]) for n in names) for row in (ours, theirs)]
    both = spark.createDataFrame(pairs, ", ".join(f"{n} binary" for n in names))
    (merged,) = both.agg(
        F.hll_sketch_estimate(F.hll_union_agg("hll")).alias("ints"),
        F.hll_sketch_estimate(F.hll_union_agg("hll_s")).alias("texts"),
        F.kll_sketch_get_quantile_double(F.kll_merge_agg_double("kll"), F.lit(0.5)).alias("mid"),
    ).collect()
    union = datasketches.hll_union(12)
    kll = datasketches.kll_doubles_sketch(200)
    for row in (ours, theirs):
        union.update(datasketches.hll_sketch.deserialize(bytes(row["hll"])))
        kll.merge(datasketches.kll_doubles_sketch.deserialize(bytes(row["kll"])))
    # Half of the values are shared, so the middle is where the second half begins.
    for count in (merged["ints"], merged["texts"], union.get_estimate()):
        assert count == pytest.approx(1.5 * DIFFERENT * (1 - 2.718281828 ** (-SIZE / DIFFERENT)), rel=0.06)
    for mid in (merged["mid"], kll.get_quantile(0.5)):
        assert mid == pytest.approx(0.75 * DIFFERENT, abs=0.05 * DIFFERENT)
    assert merged["ints"] == round(union.get_estimate())


def orders(rows: pa.Table) -> list[pa.Table]:
    """The same rows as they might come: other orders, other batches."""
    pick = random.Random(7)
    shuffled = rows.take(pa.array(pick.sample(range(rows.num_rows), rows.num_rows)))
    pieces = [shuffled.slice(at, 700) for at in range(0, rows.num_rows, 700)]
    return [rows, rows.sort_by("v"), rows.sort_by([("v", "descending")]), pa.concat_tables(pieces)]


@pytest.mark.compiled  # tens of thousands of rows
def test_an_hll_estimate_depends_on_the_values_and_not_on_their_order_or_batches() -> None:
    query = STREAM.window(tm.tumbling(60)).agg(
        ints=tm.distinct_count(col.v, method="hll"), texts=tm.distinct_count(col.s, method="hll")
    )
    for n in (5, 380, 500, SIZE):
        found = [query.run(s=rows).to_pylist() for rows in orders(table().slice(0, n))]
        found += [by_reference(query, rows.to_pylist()) for rows in orders(table().slice(0, n))]
        wheels = []
        for rows in orders(table().slice(0, n)):
            wheel = tm.Wheel(
                {"ints": tm.distinct_count(col.v, method="hll")}, schema=SCHEMA, time="t", start=0,
                granularities=[(1, "keep"), (10, "keep")],
            )  # fmt: skip
            for batch in rows.to_batches(max_chunksize=max(1, n // 3)):
                wheel.insert(batch)
            wheel.advance_to(60)
            wheels.append(wheel.query(0, 60))
        assert all(f == found[0] for f in found)
        assert {repr(w) for w in wheels} == {repr(wheels[0])}
        assert wheels[0] in ({"ints": found[0][0]["ints"]}, found[0][0]["ints"])


def test_an_hll_estimate_is_the_same_on_spark(spark: Any) -> None:
    query = STREAM.window(tm.tumbling(60)).agg(
        ints=tm.distinct_count(col.v, method="hll"), texts=tm.distinct_count(col.s, method="hll")
    )
    want = query.run(s=table()).to_pylist()
    for parts in (1, 4):
        df = spark.createDataFrame(table()).repartition(parts)
        assert query.on_spark(spark).run(s=df).toArrow().to_pylist() == want


@pytest.mark.compiled
def test_a_kll_quantile_differs_from_run_to_run_within_its_bound() -> None:
    query = STREAM.window(tm.tumbling(60)).agg(
        **{f"q{i}": tm.quantile(col.x, i / 10, method="kll") for i in (1, 5, 9)}
    )
    values = np.sort(np.asarray(table()["x"]))
    bound = datasketches.kll_doubles_sketch.get_normalized_rank_error(200, False)
    for rows in orders(table()) * 3:
        (found,) = query.run(s=rows).to_pylist()
        for i in (1, 5, 9):
            low = np.searchsorted(values, found[f"q{i}"], "left") / len(values)
            high = np.searchsorted(values, found[f"q{i}"], "right") / len(values)
            assert low - 2 * bound <= i / 10 <= high + 2 * bound
    few = table().slice(0, 150)  # below its size it holds all values, and nothing is tossed for
    answers = {repr(query.run(s=rows).to_pylist()) for rows in orders(few) * 3}
    assert len(answers) == 1
