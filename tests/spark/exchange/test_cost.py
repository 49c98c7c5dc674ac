"""The cost model: what it says of inputs whose nearness is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from tidemill.core.errors import UserError
from tidemill.spark.exchange import partitions
from tidemill.spark.exchange.cost import JOBS, of_partials, of_rows
from tidemill.spark.exchange.network import Links, links, parse_rate
from tidemill.spark.exchange.survey import Survey, survey

SLOW = Links(hosts=4, cores=4, bytes_per_second=12.5e6)
UNITS = [0, 1, 2, 3]
ROWS = 5_000_000


def seen(keys: np.ndarray, parts: np.ndarray, width: float = 100.0) -> Survey:
    """A sample that stands for `ROWS` rows; hashes are numbers whose lowest bits are 0."""
    share = 2.0 ** np.round(np.log2(len(keys) / ROWS))
    low = round(-np.log2(share))
    rows = tuple(int(n / share) for n in np.bincount(parts, minlength=4))
    return Survey(rows, parts, keys.astype(np.int64) << low, share, width)


rng = np.random.default_rng(0)
near = seen(np.repeat(np.arange(5000), 8), np.arange(40_000) * 4 // 40_000)
"""Eight rows of a key, one after the other."""
far = seen(np.repeat(np.arange(5000), 8), rng.integers(0, 4, 40_000))
once = seen(np.arange(40_000), rng.integers(0, 4, 40_000))


def test_rows_that_are_near_each_other_stay() -> None:
    found = of_rows([near], [UNITS], SLOW)
    assert found.sent_bytes < 0.1 * found.plain_bytes and found.pays


def test_rows_that_are_everywhere_travel() -> None:
    found = of_rows([far], [UNITS], SLOW)
    assert found.sent_bytes > 0.6 * found.plain_bytes and not found.pays


def test_on_a_fast_network_nothing_pays() -> None:
    fast = replace(SLOW, bytes_per_second=12.5e9)
    assert not of_rows([near], [UNITS], fast).pays
    assert not of_partials(once, UNITS, fast, width=40).pays


def test_narrow_rows_are_not_worth_a_filter() -> None:
    assert not of_rows([replace(near, width=4.0)], [UNITS], SLOW).pays


def test_partials_of_keys_that_one_unit_has_stay() -> None:
    found = of_partials(once, UNITS, SLOW, width=100)
    assert found.sent_bytes - found.filter_bytes == 0 and found.pays
    shared = of_partials(far, UNITS, SLOW, width=100)
    assert shared.sent_bytes > shared.plain_bytes and not shared.pays


def test_one_sided_keys_of_an_inner_join_do_not_travel() -> None:
    few = Survey((10_000,) * 4, near.partitions[:320], near.hashes[:320], near.share, 100.0)
    inner = of_rows([far, few], [UNITS, UNITS], SLOW, [True, True])
    outer = of_rows([far, few], [UNITS, UNITS], SLOW, [False, True])
    assert inner.sent_bytes - inner.filter_bytes < 0.05 * inner.plain_bytes
    assert inner.detect_seconds < outer.detect_seconds - JOBS / 10
    assert inner.pays


def test_a_survey_sees_all_rows_of_the_keys_in_its_sample(spark: Any) -> None:
    df = spark.range(0, 200_000, 1, 4).select((F.col("id") / 4).cast("long").alias("k"))
    found = survey(df, F.xxhash64("k"), 200_000)
    assert found.rows == (50_000,) * 4
    keys, counts = np.unique(found.hashes, return_counts=True)
    assert set(counts) == {4} and found.share == 0.25
    assert abs(len(keys) / found.share / 50_000 - 1) < 0.1
    assert partitions.reads_only(df) and not partitions.reads_only(df.groupBy("k").count())


def test_links(spark: Any) -> None:
    assert links(spark).hosts == 1
    assert parse_rate("1gbit") == 125e6
    with pytest.raises(UserError, match="a rate such as"):
        parse_rate("fast")
