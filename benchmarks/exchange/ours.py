"""The five programs with Tidemill's exchanges: those of `examples/`, with the settings of `plain`."""

from __future__ import annotations

from benchmarks.exchange import plain
from benchmarks.exchange.plain import BLOOM, OPTIONS, Answer, Tables, with_options
from examples.medians import medians as medians_of
from examples.orders import orders_with_lines as joined
from examples.page_rank import page_rank as ranks_of
from examples.triangles import triangles as triangles_of
from examples.word_count import word_count as counts_of
from tidemill.spark.exchange import group_by_key

DETECT = {"tidemill": "auto", "on": "on", "off": "off"}
"""Systems by name: what Tidemill does by itself, and what it is told to do."""


@with_options(OPTIONS)
def word_count(tables: Tables, detect: str) -> Answer:
    return plain.of_words(counts_of(tables["text"], detect))


@with_options(OPTIONS)
def page_rank(tables: Tables, detect: str, pages: int, steps: int) -> Answer:
    return plain.of_ranks(ranks_of(tables["web"], pages, steps, plain.DAMPING, detect))


@with_options(OPTIONS | BLOOM)
def orders_with_lines(tables: Tables, detect: str, *, filtered: bool) -> Answer:
    orders, lines = plain.sides(tables, filtered=filtered)
    # The same columns under the same names, so that sums over all of them are the same.
    found = joined(orders, lines, detect).withColumnRenamed("orderkey", "l_orderkey")
    return plain.of_rows(found.withColumn("o_orderkey", found["l_orderkey"]))


@with_options(OPTIONS)
def medians(tables: Tables, detect: str) -> Answer:
    return plain.of_medians(medians_of(tables["pairs"], detect))


@with_options(OPTIONS)
def medians_by_lists(tables: Tables, detect: str) -> Answer:
    return plain.of_lists(group_by_key(tables["pairs"], ["k"], plain.sorted_values(), detect=detect))


@with_options(OPTIONS)
def triangles(tables: Tables, detect: str) -> Answer:
    return plain.numbers(triangles_of(tables["edges"], detect), "count(*) triangles")


