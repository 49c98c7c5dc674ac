"""Data of the exchange programs is as near as it says; plain Spark's answers are right."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.exchange import data, plain
from benchmarks.exchange.cluster import Cluster
from benchmarks.exchange.load import load
from tidemill.spark.private import partition_hosts


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "KEPT", tmp_path_factory.mktemp("kept"))
        yield data


def _parts(folder: Path) -> list[pa.Table]:
    found = [pq.read_table(folder / f"part-{i}.parquet") for i in range(data.PARTS)]
    assert len(list(folder.iterdir())) == data.PARTS
    assert all(pq.ParquetFile(p).num_row_groups > 1 for p in folder.iterdir())
    return found


def test_data_is_made_once_and_never_by_half(kept: Any) -> None:
    calls = []

    def make(folder: Path) -> None:
        calls.append(folder)
        if len(calls) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        data.kept("x", make)
    assert not list(data.KEPT.iterdir())
    assert data.kept("x", make) == data.kept("x", make)
    assert len(calls) == 2


def test_most_rare_words_are_in_one_part(kept: Any) -> None:
    parts = _parts(data.text(200_000))
    counts = [Counter(w for line in p["line"].to_pylist() for w in line.split()) for p in parts]
    every = Counter[str]()
    for found in counts:
        every.update(found)
    holders = Counter(w for found in counts for w in found)
    rare = [w for w, n in every.items() if 2 <= n <= 5]
    assert every.total() == pytest.approx(200_000, rel=0.01)
    assert np.mean([holders[w] == 1 for w in rare]) > 0.6
    assert sum(n == data.PARTS for n in holders.values()) > 500
    # The frequency of a word is about one over its rank.
    top = [n for _, n in every.most_common(100)]
    assert top[0] / top[9] == pytest.approx(10, rel=0.5)


def test_most_links_stay_in_their_site(kept: Any) -> None:
    pages = 8 * 4 * data.SITE
    parts = _parts(data.web(pages))
    table = pa.concat_tables(parts)
    assert table["page"].to_pylist() == list(range(pages))
    outs = table["outs"].combine_chunks()
    source = np.repeat(np.arange(pages), np.diff(np.asarray(outs.offsets)))
    target = np.asarray(outs.flatten())
    assert 20 < len(target) / pages < 40
    assert np.mean(source // data.SITE == target // data.SITE) > 0.75
    popular = np.sort(np.bincount(target, minlength=pages))
    assert popular[0] >= 1 and popular[-1] > 20 * np.median(popular)


def test_a_vertex_has_its_edges_in_one_part(kept: Any) -> None:
    parts = _parts(data.random_graph(1_000))
    found = [np.unique(p["s"]) for p in parts]
    assert len(np.concatenate(found)) == len(np.unique(np.concatenate(found)))
    edges = sum(p.num_rows for p in parts)
    assert edges == pytest.approx(20 * 1_000, rel=0.05)
    assert all((np.asarray(p["s"]) < np.asarray(p["t"])).all() for p in parts)


def test_a_key_has_its_128_pairs_in_one_part(kept: Any) -> None:
    for part in _parts(data.pairs(20_000)):
        assert set(Counter(part["k"].to_pylist()).values()) == {128}


def test_orders_and_their_lines_are_in_the_same_part(kept: Any) -> None:
    folder = data.tpch(0.005)
    for i in range(data.PARTS):
        orders, lines = (
            pq.read_table(folder / t / f"part-{i}.parquet") for t in ("orders", "lineitem")
        )
        assert set(lines["l_orderkey"].to_pylist()) == set(orders["o_orderkey"].to_pylist())


# --- plain Spark ----------------------------------------------------------------------------------


def _loaded(spark: Any, **folders: Path) -> dict[str, Any]:
    return {name: load(Cluster(spark, ("localhost",)), folder) for name, folder in folders.items()}


@pytest.mark.soak  # the benchmark compares these answers, too
def test_words_are_counted(spark: Any, kept: Any) -> None:
    folder = data.text(20_000)
    every = Counter(
        w for p in _parts(folder) for line in p["line"].to_pylist() for w in line.split()
    )
    answer = plain.word_count(_loaded(spark, text=folder))
    assert (answer["words"], answer["total"]) == (len(every), every.total())


@pytest.mark.soak  # the benchmark compares these answers, too
def test_ranks_are_those_of_a_matrix(spark: Any, kept: Any) -> None:
    pages = 8 * data.SITE
    folder = data.web(pages)
    outs = pa.concat_tables(_parts(folder))["outs"].combine_chunks()
    degree = np.diff(np.asarray(outs.offsets))
    source, target = np.repeat(np.arange(pages), degree), np.asarray(outs.flatten())
    rank = np.full(pages, 1 / pages)
    for _ in range(2):
        rank = 0.15 / pages + 0.85 * np.bincount(target, (rank / degree)[source], pages)
    answer = plain.page_rank(_loaded(spark, web=folder), pages, 2)
    assert answer["pages"] == pages
    assert answer["placed"] == pytest.approx((rank * (np.arange(pages) % 1009)).sum())
    assert answer["most"] == pytest.approx(rank.max())


@pytest.mark.soak  # the benchmark compares these answers, too
def test_orders_are_joined_and_the_runtime_filter_fires(spark: Any, kept: Any) -> None:
    folder = data.tpch(0.005)
    names = ("orders", "lineitem")
    tables = _loaded(spark, **{t: folder / t for t in names})
    arrow = [pa.concat_tables(pq.read_table(p) for p in (folder / t).iterdir()) for t in names]
    orders, lines = (t.to_pandas() for t in arrow)
    assert plain.orders_with_lines(tables, filtered=False)["rows"] == len(lines)
    quarter = orders[orders.o_orderdate.astype("str").between("1993-07-01", "1993-09-30")]
    late = lines[lines.l_commitdate < lines.l_receiptdate]
    expected = late.l_orderkey.isin(quarter.o_orderkey).sum()
    assert plain.orders_with_lines(tables, filtered=True)["rows"] == expected > 50
    with plain.options(spark, plain.OPTIONS | plain.BLOOM):
        left, right = plain.sides(tables, filtered=True)
        joined = right.join(left, right["l_orderkey"] == left["o_orderkey"])
        plan = joined._jdf.queryExecution().executedPlan().toString()
    assert "might_contain" in plan and "Broadcast" not in plan


@pytest.mark.soak  # the benchmark compares these answers, too
def test_medians_are_those_of_numpy(spark: Any, kept: Any) -> None:
    folder = data.pairs(20_000)
    values = np.concatenate([np.asarray(p["v"]) for p in _parts(folder)]).reshape(-1, 128)
    answer = plain.medians(_loaded(spark, pairs=folder))
    assert answer["keys"] == len(values)
    assert answer["total"] == pytest.approx(np.median(values, axis=1).sum())


@pytest.mark.soak  # the benchmark compares these answers, too
def test_triangles_are_counted(spark: Any, kept: Any) -> None:
    folder = data.random_graph(200)
    edges = pa.concat_tables(_parts(folder))
    near = np.zeros((200, 200), np.int64)
    near[np.asarray(edges["s"]), np.asarray(edges["t"])] = 1
    assert plain.triangles(_loaded(spark, edges=folder)) == {
        "triangles": (near @ near * near).sum()
    }


def test_a_cached_frame_says_where_it_is(spark: Any, kept: Any) -> None:
    found = partition_hosts(_loaded(spark, pairs=data.pairs(20_000))["pairs"])
    assert len(found) == data.PARTS and len(set(found)) == 1
