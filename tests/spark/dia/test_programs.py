"""The programs of section 3.4 on the DIA, against direct computations."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tidemill.spark.dia import DIA, generate, read_lines

# --- WordCount, figure 3.2 ------------------------------------------------------------------------


def word_count(spark: Any, source: Path, target: Path) -> DIA:
    counts = (
        read_lines(spark, source)
        .flat_map(lambda line: line.split(" "))
        .map(lambda word: (word, 1))
        .reduce_by_key(lambda p: p[0], lambda a, b: (a[0], a[1] + b[1]))
    )
    counts.map(lambda p: p[0] + ": " + p[1].cast("string")).write_lines(target)
    return counts


def test_figure_3_2_word_count(spark: Any, tmp_path: Path) -> None:
    text = "the tide turns the mill\nand the mill turns the stone\n"
    (tmp_path / "text").write_text(text * 3)
    counts = word_count(spark, tmp_path / "text", tmp_path / "out")
    assert all(n.runs == "JVM" for n in counts._node.walk())
    want = Counter((text * 3).split())
    assert dict(counts.all_gather()) == want
    assert sorted(read_lines(spark, tmp_path / "out").all_gather()) == sorted(
        f"{w}: {n}" for w, n in want.items()
    )


# --- PageRank, figure 3.3 -------------------------------------------------------------------------


def page_rank(spark: Any, lines: DIA, iterations: int, dampening: float) -> DIA:
    edges = lines.map(lambda line: line.split(" ")).map(
        lambda e: (e.list_get(0).cast("int64"), e.list_get(1).cast("int64"))
    )
    pages = edges.map(lambda e: max(e[0], e[1]), returns=int).max() + 1
    links = edges.group_by_key(lambda e: e[0], lambda group, page: (page, [t for _, t in group]))
    links = links.cache()
    ranks = generate(spark, pages, lambda page: (page, 1.0 / pages))
    for _ in range(iterations):
        shares = links.inner_join(
            ranks, lambda l: l[0], lambda r: r[0], lambda l, r: (l[1], r[1]), returns=([int], float)
        )
        given = shares.flat_map(
            lambda s: [(t, s[1] / len(s[0])) for t in s[0]], returns=(int, float)
        )
        ranks = (
            given.reduce_pair(lambda a, b: a + b)
            .map(lambda p: (p[0], (1 - dampening) * p[1] + dampening / pages))
            .execute()
        )
    return ranks


def ranked(
    edges: list[tuple[int, int]], pages: int, iterations: int, dampening: float
) -> list[float]:
    ranks = [1 / pages] * pages
    for _ in range(iterations):
        new = [0.0] * pages
        for source, target in edges:
            new[target] += ranks[source] / sum(s == source for s, _ in edges)
        ranks = [(1 - dampening) * r + dampening / pages for r in new]
    return ranks


@pytest.mark.usefixtures("generated_java")
def test_figure_3_4_page_rank(spark: Any, tmp_path: Path) -> None:
    # Five nodes and seven undirected edges, dampening 0.25, two iterations. The picture is not in
    # the text of the paper; this graph has what the text says.
    undirected = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (2, 4), (3, 4)]
    edges = sorted([*undirected, *((b, a) for a, b in undirected)])
    (tmp_path / "edges").write_text("".join(f"{a} {b}\n" for a, b in edges))
    ranks = page_rank(spark, read_lines(spark, tmp_path / "edges"), 2, 0.25)
    got, want = dict(ranks.all_gather()), ranked(edges, 5, 2, 0.25)
    assert [round(got[p], 12) for p in range(5)] == [round(r, 12) for r in want]
    assert abs(sum(got.values()) - 1) < 1e-12


# --- Triangles, algorithm 4 -----------------------------------------------------------------------


def neighbours(line: str) -> list[tuple[int, int]]:
    node, *others = map(int, line.split())
    return [(node, other) for other in others if other > node]


def triangles(lines: DIA) -> tuple[int, int]:
    """How many paths of length two there are with increasing ids, and how many triangles."""
    edges = lines.flat_map(neighbours, returns=(int, int)).execute()
    paths = edges.inner_join(edges, lambda e: e[1], lambda e: e[0], lambda a, b: (a[0], b[1]))
    found = edges.inner_join(paths, lambda e: e, lambda p: p, lambda e, p: 1)
    return paths.size(), found.size()


def adjacency(edges: list[tuple[int, int]], nodes: int) -> str:
    near: dict[int, list[int]] = {n: [] for n in range(nodes)}
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)
    return "".join(f"{n} {' '.join(map(str, sorted(others)))}\n" for n, others in near.items())


def brute(edges: list[tuple[int, int]], nodes: int) -> int:
    known = set(edges)
    return sum({(a, b), (b, c), (a, c)} <= known for a, b, c in combinations(range(nodes), 3))


@pytest.mark.soak
def test_figure_3_9_triangles(spark: Any, tmp_path: Path) -> None:
    # Four nodes, five edges, two paths of length two, as the text says.
    edges = [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)]
    (tmp_path / "graph").write_text(adjacency(edges, 4))
    paths, found = triangles(read_lines(spark, tmp_path / "graph"))
    assert (paths, found) == (2, brute(edges, 4)) == (2, 2)


@pytest.mark.soak
def test_triangles_of_a_random_graph(spark: Any, tmp_path: Path) -> None:
    rng = random.Random(3)
    edges = [e for e in combinations(range(15), 2) if rng.random() < 0.4]
    (tmp_path / "graph").write_text(adjacency(edges, 15))
    assert triangles(read_lines(spark, tmp_path / "graph"))[1] == brute(edges, 15)
