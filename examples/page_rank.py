"""PageRank (paper 002, section 3.4.2): pages push their rank evenly along their links.

    python -m examples.page_rank

Links never move. Ranks are pushed to where the links of a page are: only those for pages on another host
travel, one for each page and host. Who has which page does not change, so it is found out once.
"""

from __future__ import annotations

from typing import Any

import tidemill as tm
from tidemill import col
from tidemill.spark.caching import holding
from tidemill.spark.exchange import place


def page_rank(
    links: Any, pages: int, steps: int = 10, damping: float = 0.85, detect: str = "auto"
) -> Any:
    """Ranks of pages after some steps: `links` has a row for each `page`, with the pages in `outs`."""
    from pyspark.sql import functions as F

    placed = place(links, ["page"], detect=detect)
    placed = placed.known_to(placed.rows.select(F.explode("outs").alias("page")))
    ranks = None
    for _ in range(steps):
        if ranks is None:
            ranked = placed.rows.withColumn("rank", F.lit(1.0 / pages))
        else:
            ranked = placed.join(ranks)
        pushed = ranked.select(
            F.explode("outs").alias("page"), (F.col("rank") / F.size("outs")).alias("share")
        )
        rank = (F.lit((1 - damping) / pages) + damping * F.col("pushed")).alias("rank")
        summed = placed.reduce(pushed, {"pushed": tm.sum(col.share)})
        ranks = summed.select(*(c for c in summed.columns if c != "pushed"), rank)
    assert ranks is not None, "at least one step"
    return holding(ranks.select("page", "rank"), placed.rows)


def five_nodes() -> list[tuple[int, list[int]]]:
    """A graph of five pages and seven links between them, both ways, as in Figure 3.4."""
    edges = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (2, 4), (3, 4)]
    outs: dict[int, list[int]] = {page: [] for page in range(5)}
    for one, two in edges:
        outs[one].append(two)
        outs[two].append(one)
    return sorted(outs.items())


def directly(links: list[tuple[int, list[int]]], steps: int, damping: float) -> dict[int, float]:
    """The same in plain Python."""
    pages = len(links)
    ranks = {page: 1 / pages for page, _ in links}
    for _ in range(steps):
        pushed = dict.fromkeys(ranks, 0.0)
        for page, outs in links:
            for out in outs:
                pushed[out] += ranks[page] / len(outs)
        ranks = {page: (1 - damping) / pages + damping * p for page, p in pushed.items()}
    return ranks


def main() -> None:
    from examples.session import session

    with session() as spark:
        links = spark.createDataFrame(five_nodes(), "page long, outs array<long>").repartition(2)
        page_rank(links, 5, 2, damping=0.75, detect="on").orderBy("page").show()


if __name__ == "__main__":
    main()
