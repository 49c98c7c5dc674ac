"""Windowed queries whose partials or rows are sent where most of their key is: the same answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tests.examples import later
from tidemill import col

pytest.importorskip("pyspark")


from tidemill.spark.exchange.decision import Decision, watched

STREAM = tm.stream("rows", time="t", schema={"t": "int64", "k": "string", "v": "int64", "x": "float64"})
BY_KEY = STREAM.group_by("k")
QUERIES = {
    "jvm": BY_KEY.window(tm.tumbling(10)).agg(n=tm.count(), s=tm.sum(col.v), sd=tm.std(col.x)),
    "panes": BY_KEY.window(tm.hopping(30, every=10)).agg(m=tm.mean(col.x), h=tm.max(col.v)),
    "colocated": BY_KEY.window(tm.session(3)).agg(n=tm.count(), last=tm.last(col.v)),
}


@pytest.mark.parametrize("way", ["panes", *later("jvm", "colocated")])
def test_detected_windows_have_the_answers_of_this_process(spark: Any, way: str) -> None:
    rng = np.random.default_rng(5)
    key = np.sort(rng.integers(0, 12, 400))
    key[rng.random(400) < 0.2] = 3
    table = pa.table({
        "t": rng.integers(0, 200, 400),
        "k": pa.array([f"k{k}" for k in key], mask=rng.random(400) < 0.05),
        "v": pa.array(rng.integers(0, 100, 400), mask=rng.random(400) < 0.1),
        "x": rng.normal(size=400),
    })  # fmt: skip
    df = spark.createDataFrame(table).repartition(3, "v").cache()
    decisions: list[Decision] = []
    with watched(decisions):
        found = QUERIES[way].on_spark(spark, detect="on").run(rows=df).toArrow()
    assert any(d.detected is not None for d in decisions), decisions
    expected = QUERIES[way].run(rows=table)
    order = [("k", "ascending"), ("window_start", "ascending")]
    a, b = found.sort_by(order).to_pandas(), expected.sort_by(order).to_pandas()
    assert len(a) == len(b) > 20
    for name in expected.column_names:
        if a[name].dtype.kind == "f":
            np.testing.assert_allclose(a[name], b[name], atol=1e-9)
        else:
            assert a[name].tolist() == b[name].tolist()


def test_explain_says_what_was_decided(spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    df = spark.range(10).selectExpr("id AS t", "'a' AS k", "id AS v", "double(id) AS x")
    text = QUERIES["panes"].on_spark(spark).explain(rows=df)
    assert "exchange window by k0: plain — all is on one host" in text
