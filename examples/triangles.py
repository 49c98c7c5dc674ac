"""Triangle counting (paper 002, section 3.4.5): ways of two edges, and those of them that an edge closes.

    python -m examples.triangles
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from tidemill.spark.exchange import join


def triangles(edges: Any, detect: str = "auto") -> Any:
    """A row for each triangle of a graph: `edges` go from `s` to a `t` that is greater."""
    from pyspark.sql import functions as F

    first = edges.select(F.col("s").alias("s0"), F.col("t").alias("middle"))
    second = edges.select(F.col("s").alias("middle"), F.col("t").alias("t1"))
    ways = join(first, second, ["middle"], detect=detect)
    ways = ways.select(F.col("s0").alias("s"), F.col("t1").alias("t"), "middle")
    return join(ways, edges, ["s", "t"], detect=detect).select("s", "middle", "t")


def four_nodes() -> list[tuple[int, int]]:
    """Four vertices and five edges, as in Figure 3.9: two ways of two edges go upwards."""
    return [(0, 1), (0, 2), (0, 3), (1, 2), (2, 3)]


def random_edges(vertices: int, degree: int, seed: int = 0) -> list[tuple[int, int]]:
    """Edges between vertices that are as likely as any others."""
    pairs = np.random.default_rng(seed).integers(0, vertices, (vertices * degree // 2, 2))
    return sorted({(int(min(p)), int(max(p))) for p in pairs if p[0] != p[1]})


def directly(edges: list[tuple[int, int]]) -> set[tuple[int, int, int]]:
    """The same in plain Python."""
    known, outs = set(edges), {}  # type: ignore[var-annotated]
    for s, t in edges:
        outs.setdefault(s, set()).add(t)
    return {
        (s, *sorted(pair))
        for s, found in outs.items()
        for pair in combinations(found, 2)
        if tuple(sorted(pair)) in known
    }


def main() -> None:
    from examples.session import session

    with session() as spark:
        for edges in (four_nodes(), random_edges(500, 20)):
            df = spark.createDataFrame(edges, "s long, t long").repartition(3, "s").cache()
            print(f"{len(edges)} edges, {triangles(df, detect='on').count()} triangles")


if __name__ == "__main__":
    main()
