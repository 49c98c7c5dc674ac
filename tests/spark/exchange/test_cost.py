"""The cost model: what it says of inputs whose nearness is known."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from tidemill.core.errors import UserError
from tidemill.spark.exchange import decision, group_by_key, inputs, join
from tidemill.spark.exchange.cost import (
    Combined,
    grouped_at_best,
    joined_at_best,
    of_partials,
    of_rows,
    partials_at_best,
)
from tidemill.spark.exchange.detect import Keys, Side
from tidemill.spark.exchange.network import Links, links, parse_rate
from tidemill.spark.exchange.result_partitions import ResultPartitions, result_partitions

SLOW = Links(hosts=4, cores=4, bytes_per_second=12.5e6)
ONE = ResultPartitions(("a", "b", "c", "d"), ((0, 1, 2, 3),), by_host=True)
TWO = replace(ONE, of_side=((0, 1, 2, 3), (0, 1, 2, 3)))
ROWS = 5_000_000


def seen(*sides: tuple[np.ndarray, np.ndarray, float]) -> Any:
    """What sources say of a sample that stands for `ROWS` rows a side: hashes, their partitions, a width."""
    entries = []
    for number, (keys, parts, _) in enumerate(sides):
        pairs, rows = np.unique(np.stack([keys, parts + 4 * number]), axis=1, return_counts=True)
        entries.append((*pairs, rows))
    scale = ROWS / max(len(keys) for keys, _, _ in sides)
    rows_of = [int(len(keys) * scale) for keys, _, _ in sides]
    widths = tuple(width for _, _, width in sides)
    return SimpleNamespace(
        side_of=tuple(np.repeat(range(len(sides)), 4).tolist()), widths=widths, rows_of=rows_of,
        entries=sum(len(keys) for keys, _, _ in entries) * scale,
        distinct=len(np.unique(np.concatenate([keys for keys, _, _ in entries]))) * scale,
        sample=tuple(map(np.concatenate, zip(*entries))),
        bytes_of=[n * width for n, width in zip(rows_of, widths)],
    )  # fmt: skip


rng = np.random.default_rng(0)
eight = np.repeat(np.arange(5000), 8)
in_order, anywhere = np.arange(40_000) * 4 // 40_000, rng.integers(0, 4, 40_000)
near = (eight, in_order, 200.0)
"""Eight rows of a key, one after the other."""
far = (eight, anywhere, 200.0)
once = (np.arange(40_000), anywhere, 200.0)


def test_rows_that_are_near_each_other_stay() -> None:
    found = of_rows(seen(near), ONE, SLOW)
    assert found.sent_bytes < 0.1 * found.plain_bytes and found.pays
    assert grouped_at_best(ROWS * 100, ROWS, SLOW).may_pay


def test_rows_that_are_everywhere_travel() -> None:
    found = of_rows(seen(far), ONE, SLOW)
    assert found.sent_bytes > 0.6 * found.plain_bytes and not found.pays


def test_slots_on_one_host_send_each_other_nothing() -> None:
    beside = ResultPartitions(("a", "a", "a", "b"), ((0, 1, 2, 3),), by_host=True)
    found = of_rows(seen(far), beside, replace(SLOW, hosts=2))
    assert found.sent_bytes - found.filter_bytes < 0.3 * ROWS * 100.0


def test_what_is_not_worth_a_look() -> None:
    assert not joined_at_best(1e6, 1e4, SLOW).may_pay
    fast = replace(SLOW, bytes_per_second=12.5e9)
    assert not grouped_at_best(ROWS * 8, ROWS, fast, by=Combined(before=True)).may_pay
    assert grouped_at_best(ROWS * 800, 100 * ROWS, fast, by=Combined(True, merged=True)).may_pay
    assert not partials_at_best(14.0 * ROWS, ROWS, fast).may_pay
    assert partials_at_best(200.0 * ROWS, ROWS, SLOW).may_pay


def test_partials_of_keys_that_one_slot_has_stay() -> None:
    found = of_partials(seen(once), ONE, SLOW)
    assert found.sent_bytes == found.filter_bytes < 0.1 * found.plain_bytes and found.pays
    shared = of_partials(seen(far), ONE, SLOW)
    assert shared.sent_bytes > 0.5 * shared.plain_bytes and not shared.pays


def test_one_sided_keys_of_a_join_do_not_travel() -> None:
    few = (eight[:320], in_order[:320], 200.0)
    found = of_rows(seen(far, few), TWO, SLOW)
    assert found.sent_bytes - found.filter_bytes < 0.05 * found.plain_bytes


def test_keys_of_a_sample_are_told_with_all_their_rows(spark: Any) -> None:
    df = spark.range(0, 200_000, 1, 4).select((F.col("id") / 4).cast("long").alias("k"))
    assert inputs.reads_only(df) and not inputs.reads_only(df.groupBy("k").count())
    with Keys([Side.of(df, F.xxhash64("k"), 8.0)], result_partitions([df]), sample=4) as found:
        told = found.seen
    assert told.rows_of == [200_000] and told.entries == 50_000
    hashes, sources, rows = told.sample
    assert set(rows) == {4} and set(sources) == {0, 1, 2, 3} and not (hashes & 15).any()
    assert abs(len(hashes) * 16 / 50_000 - 1) < 0.1 and abs(told.distinct / 50_000 - 1) < 0.05


def test_auto_detects_where_that_pays(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links so slow that everything pays, then such as nothing does; the answers are the same."""
    orders = spark.range(0, 2000, 1, 4).select(F.col("id").alias("k"), F.lit("some text").alias("s")).cache()
    lines = spark.range(0, 8000, 1, 4).select((F.col("id") / 4).cast("long").alias("k"), "id").cache()
    assert orders.count() == 2000 and lines.count() == 8000
    monkeypatch.setattr(decision, "host_count", lambda spark: 2)
    for rate, detects, why in ((1.0, True, "it pays"), (1e12, False, "if nothing had to be sent")):
        monkeypatch.setattr(decision, "links_of", lambda spark, rate=rate: Links(2, 2, rate))
        made = join(orders, lines, ["k"])
        assert made.count() == 8000
        found = decision.decision_of(made)
        assert (found.detects, why in found.why) == (detects, True)
        assert "MB would travel" in str(found)
    # Nothing is near, and rows are as narrow as can be: that is seen when keys are.
    monkeypatch.setattr(decision, "links_of", lambda spark: Links(2, 2, 1.0))
    far = spark.range(0, 4000, 1, 4).select((F.col("id") % 1000).alias("k"), F.lit(1).alias("v")).cache()
    assert far.count() == 4000
    grouped = group_by_key(far, ["k"], F.sum("v").alias("n"))
    assert {r.n for r in grouped.collect()} == {4}
    assert "it does not pay" in decision.decision_of(grouped).why


def test_aggregates_that_are_maps(spark: Any) -> None:
    rows = spark.range(10).withColumn("k", F.col("id") % 2).groupBy("k")
    assert inputs.merges_maps(rows.agg(F.median("id"))) and inputs.merges_maps(rows.agg(F.mode("id")))
    assert not inputs.merges_maps(rows.agg(F.sum("id"), F.collect_list("id")))


def test_links(spark: Any) -> None:
    assert links(spark).hosts == 1
    assert parse_rate("1gbit") == 125e6
    with pytest.raises(UserError, match="a rate such as"):
        parse_rate("fast")
