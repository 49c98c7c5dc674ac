"""The five programs of paper 002 against direct computation."""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark")

from examples import medians, orders, page_rank, triangles, word_count
from tests.examples import later
from tidemill.spark.exchange.traffic import traffic

DETECTED = pytest.mark.parametrize("detect", ["on", *later("off")])


def test_word_count(spark: Any) -> None:
    lines = word_count.some_text()[:400]
    text = spark.createDataFrame([(line,) for line in lines], "line string").repartition(3)
    counts = word_count.word_count(text, detect="on")
    expected = Counter(word for line in lines for word in line.split(" ") if word)
    assert {r.word: r.n for r in counts.collect()} == expected


@pytest.mark.soak  # as a DIA in test_programs.py there
def test_figure_3_4_page_rank_of_five_nodes(spark: Any) -> None:
    """After two steps with the paper's dampening of 0.25, which multiplies ranks by 0.75."""
    links = page_rank.five_nodes()
    df = spark.createDataFrame(links, "page long, outs array<long>").repartition(2, "page")
    expected = page_rank.directly(links, 2, damping=0.75)
    ranks = page_rank.page_rank(df, 5, 2, damping=0.75, detect="on")
    assert {r.page: r.rank for r in ranks.collect()} == pytest.approx(expected)


@DETECTED
@pytest.mark.soak
def test_page_rank_of_a_graph(spark: Any, detect: str) -> None:
    rng = np.random.default_rng(4)
    links = [(page, sorted({*map(int, rng.integers(0, 60, 5)), (page + 1) % 60})) for page in range(60)]
    df = spark.createDataFrame(links, "page long, outs array<long>").repartition(3, "page")
    expected = page_rank.directly(links, 3, damping=0.85)
    ranks = page_rank.page_rank(df, 60, 3, detect=detect)
    assert {r.page: r.rank for r in ranks.collect()} == pytest.approx(expected)


@DETECTED
@pytest.mark.soak
def test_steps_are_not_run_while_they_are_planned(spark: Any, detect: str) -> None:
    links = page_rank.five_nodes()
    df = spark.createDataFrame(links, "page long, outs array<long>").repartition(2, "page").cache()
    assert df.count() == 5
    with traffic(spark) as placing:
        page_rank.page_rank(df, 5, 1, detect=detect)
    with traffic(spark) as seen:
        page_rank.page_rank(df, 5, 4, detect=detect)
    assert len(seen.stages) == len(placing.stages) > 0


def test_medians(spark: Any) -> None:
    pairs = medians.some_pairs(spark, 4 * medians.FOR_EACH_KEY + 51)
    found = {r.k: r.median for r in medians.medians(pairs, detect="on").collect()}
    values: dict[int, list[int]] = {}
    for row in pairs.collect():
        values.setdefault(row.k, []).append(row.v)
    assert found == {k: statistics.median(vs) for k, vs in values.items()}


GRAPHS = {"figure 3.9": triangles.four_nodes(), "random": triangles.random_edges(60, 12)}


@pytest.mark.parametrize(
    "edges", later(*GRAPHS.values()), ids=GRAPHS
)
def test_triangles(spark: Any, edges: list[tuple[int, int]]) -> None:
    df = spark.createDataFrame(edges, "s long, t long").repartition(2, "s")
    found = {tuple(r) for r in triangles.triangles(df, detect="on").collect()}
    expected = triangles.directly(edges)
    assert expected and found == expected


@pytest.mark.soak
def test_tpch_query_4(spark: Any, tmp_path: Path) -> None:
    placed, lines = orders.tables(spark, tmp_path, scale=0.001)
    of_quarter = {r.o_orderkey: r.o_orderpriority for r in placed.where(orders.QUARTER).collect()}
    late = {r.l_orderkey for r in lines.where(orders.LATE).collect()}
    expected = Counter(priority for key, priority in of_quarter.items() if key in late)
    found = orders.priorities(placed, lines, detect="on")
    assert {r.o_orderpriority: r["count"] for r in found.collect()} == expected
    joined = orders.orders_with_lines(placed.where(orders.QUARTER), lines, detect="on")
    assert joined.count() == sum(r.l_orderkey in of_quarter for r in lines.select("l_orderkey").collect())
