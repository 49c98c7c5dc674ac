"""The five programs on plain Spark, as its own guides would have them written.

Spark may do what it does by itself. But our tables are small so that a run ends in time, and stand for ones
that no host could hold: so it may not broadcast a table, nor bring a shuffle together on fewer hosts than
there are; and its runtime Bloom filter may fire on tables as small as ours where that helps it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from examples.orders import LATE, QUARTER

Frame = Any
Tables = Mapping[str, Frame]
Answer = dict[str, Any]
"""Numbers that tell answers apart."""
P = TypeVar("P", bound=Callable[..., Answer])

OPTIONS = {
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
}
BLOOM = {
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "true",
    "spark.sql.optimizer.runtime.bloomFilter.creationSideThreshold": "1g",
    "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold": "0",
}
"""For joins with a filter. In PageRank it would fire too, drop nothing, and cost a pass for each step."""
DAMPING = 0.85


@contextmanager
def options(spark: Any, wanted: Mapping[str, str] = OPTIONS) -> Iterator[None]:
    """The session with these options; afterwards it is as it was."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def with_options(wanted: Mapping[str, str]) -> Callable[[P], P]:
    """A program that runs with these options."""

    def decorate(program: P) -> P:
        @functools.wraps(program)
        def run(tables: Tables, *args: Any, **kwargs: Any) -> Answer:
            with options(next(iter(tables.values())).sparkSession, wanted):
                return program(tables, *args, **kwargs)

        return cast(P, run)

    return decorate


# --- WordCount ------------------------------------------------------------------------------------


@with_options(OPTIONS)
def word_count(tables: Tables) -> Answer:
    from pyspark.sql import functions as F

    return of_words(words(tables["text"]).groupBy("word").agg(F.count("*").alias("n")))


def words(text: Frame) -> Frame:
    from pyspark.sql import functions as F

    return text.select(F.explode(F.split("line", " ")).alias("word"))


def of_words(counts: Frame) -> Answer:
    """The number of words, of different ones, and a sum in which each word counts differently."""
    return numbers(
        counts, "count(*) words", "sum(n) total", "sum(n * pmod(xxhash64(word), 1009)) placed"
    )


# --- PageRank -------------------------------------------------------------------------------------


@with_options(OPTIONS)
def page_rank(tables: Tables, pages: int, steps: int) -> Answer:
    """Links stay where they were first sent: only ranks travel in each step."""
    from pyspark.sql import functions as F

    web = tables["web"]
    partitions = int(web.sparkSession.conf.get("spark.sql.shuffle.partitions"))
    links = web.repartition(partitions, "page").cache()
    try:
        # Without this each step would fill the cache, all at the same time, and parts would travel for it.
        links.count()
        ranks = links.select("page", F.lit(1.0 / pages).alias("rank"))
        for _ in range(steps):
            pushed = links.join(ranks, "page").select(*push())
            ranks = pushed.groupBy("page").agg(F.sum("share").alias("pushed")).select(*damp(pages))
        return of_ranks(ranks)
    finally:
        links.unpersist()


def push() -> tuple[Any, Any]:
    """Columns of what a page gives to each that it links to."""
    from pyspark.sql import functions as F

    return F.explode("outs").alias("page"), (F.col("rank") / F.size("outs")).alias("share")


def damp(pages: int) -> tuple[Any, Any]:
    from pyspark.sql import functions as F

    return F.col("page"), (F.lit((1 - DAMPING) / pages) + DAMPING * F.col("pushed")).alias("rank")


def of_ranks(ranks: Frame) -> Answer:
    return numbers(
        ranks,
        "count(*) pages",
        "sum(rank) total",
        "sum(rank * (page % 1009)) placed",
        "max(rank) most",
    )


# --- TPC-H, query 4 -------------------------------------------------------------------------------


@with_options(OPTIONS | BLOOM)
def orders_with_lines(tables: Tables, *, filtered: bool) -> Answer:
    """Orders and their lines, all columns; `filtered`: of a quarter, with lines that came late.

    Without is as in Algorithm 2 of the paper.
    """
    orders, lines = sides(tables, filtered=filtered)
    return of_rows(lines.join(orders, lines["l_orderkey"] == orders["o_orderkey"]))


def sides(tables: Tables, *, filtered: bool) -> tuple[Frame, Frame]:
    orders, lines = tables["orders"], tables["lineitem"]
    return (orders.where(QUARTER), lines.where(LATE)) if filtered else (orders, lines)


def of_rows(df: Frame) -> Answer:
    """The number of rows, and a sum over all columns, as Spark would not move what nobody reads."""
    every = ", ".join(sorted(df.columns))
    return numbers(df, "count(*) rows", f"sum(shiftright(xxhash64({every}), 24)) hashes")


# --- medians --------------------------------------------------------------------------------------


@with_options(OPTIONS)
def medians(tables: Tables) -> Answer:
    from pyspark.sql import functions as F

    return of_medians(tables["pairs"].groupBy("k").agg(F.median("v").alias("median")))


@with_options(OPTIONS)
def medians_by_lists(tables: Tables) -> Answer:
    """Who knows Spark well makes sorted lists: its `median` sends maps, and takes longer to merge them."""
    return of_lists(tables["pairs"].groupBy("k").agg(sorted_values()))


def sorted_values() -> Any:
    from pyspark.sql import functions as F

    return F.sort_array(F.collect_list("v")).alias("vs")


def of_lists(ordered: Frame) -> Answer:
    middle = "(vs[(size(vs) - 1) div 2] + vs[size(vs) div 2]) / 2 AS median"
    return of_medians(ordered.selectExpr("k", middle))


def of_medians(found: Frame) -> Answer:
    return numbers(found, "count(*) keys", "sum(median) total", "sum(median * (k % 1009)) placed")


# --- triangles ------------------------------------------------------------------------------------


@with_options(OPTIONS)
def triangles(tables: Tables) -> Answer:
    """Algorithm 4: ways of two edges, and those of them that an edge closes."""
    from pyspark.sql import functions as F

    edges = tables["edges"]
    first = edges.select(F.col("s").alias("s0"), F.col("t").alias("middle"))
    second = edges.select(F.col("s").alias("middle"), F.col("t").alias("t1"))
    ways = first.join(second, "middle").select(F.col("s0").alias("s"), F.col("t1").alias("t"))
    return numbers(ways.join(edges, ["s", "t"]), "count(*) triangles")


def numbers(df: Frame, *asked: str) -> Answer:
    """One row of aggregates as a mapping."""
    row = df.selectExpr(*asked).collect()[0].asDict()
    return {name: int(v) if isinstance(v, int) else float(v) for name, v in row.items()}
