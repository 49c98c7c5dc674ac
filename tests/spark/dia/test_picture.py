"""What is said and drawn before anything runs."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tidemill.spark.dia import DIA, generate


@pytest.fixture(scope="module")
def counted(spark: Any) -> DIA:
    words = generate(spark, 5).map(lambda i: "a" if i else "b", returns=str)
    pairs = words.map(lambda w: (w, 1)).filter(lambda p: p[0] != "x")
    counts = pairs.reduce_pair(lambda a, b: a + b)
    return counts.concat(pairs).sort(lambda p: p[1])


def test_explain_says_where_what_and_in_which_order(counted: DIA, capsys: Any) -> None:
    text = str(counted.explain())
    assert capsys.readouterr().out == ""
    assert text.splitlines() == [
        "stage 1",
        "  1 generate 0 … 4: int64 — in the JVM; in order",
        "  2 map a lambda of 1: string — in Arrow batches (opaque Python: expression: col.value has no "
        "truth value until it meets a row); order kept",
        "  3 map (col.value, 1) of 2: (string, int64) — in the JVM (traced); order kept",
        "  4 filter (col.f0 != 'x') of 3: (string, int64) — in the JVM (traced); order kept",
        "stage 2",
        "  <- shuffle: a partial for each key and partition; plain — all is on one host",
        "  5 reduce_pair key col.f0, (a.f0, (a.f1 + b.f1)) of 4: (string, int64) — "
        "in the JVM (traced); order not kept",
        "  6 concat of 5, 4: (string, int64) — order kept",
        "stage 3",
        "  <- shuffle: all elements, by ranges of the key",
        "  7 sort by col.f1 of 6: (string, int64) — in the JVM (traced); in a new order",
    ]
    assert repr(counted).startswith("DIA of (string, int64):\nstage 1\n")


def test_graph(counted: DIA, tmp_path: Path) -> None:
    graph = counted.graph()
    assert graph.dot.count("subgraph cluster_") == 3
    assert graph.dot.count("->") == 7
    assert graph.dot.count("style=dashed") == 2
    root = ElementTree.fromstring(graph.svg)
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "reduce_pair" in texts and "stage 3" in texts
    graph.save(tmp_path / "g.svg")
    graph.save(tmp_path / "g.dot")
    assert (tmp_path / "g.svg").read_text() == graph._repr_svg_()
    assert (tmp_path / "g.dot").read_text() == graph.dot


def test_nothing_runs_before_an_action(spark: Any) -> None:
    tracker = spark.sparkContext._jsc.sc().dagScheduler().nextJobId()
    dia = generate(spark, 9).map(lambda x: (x % 2, x)).reduce_pair(max).sort(lambda e: e[1])
    both = dia.zip(dia).zip_with_index().window(2, lambda w: w[0][0]).prefix_sum()
    both.explain()
    both.graph()
    assert spark.sparkContext._jsc.sc().dagScheduler().nextJobId() == tracker
    assert both.size() == 1


def test_docstrings_say_whether_order_is_kept() -> None:
    for name in ("union", "reduce_by_key", "reduce_pair", "group_by_key", "inner_join", "sample"):
        assert "Order **not** kept" in (inspect.getdoc(getattr(DIA, name)) or "")
    methods = [n for n, v in vars(DIA).items() if callable(v) and not n.startswith("_")]
    assert [n for n in methods if not inspect.getdoc(getattr(DIA, n))] == []
