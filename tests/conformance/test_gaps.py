"""What an engine does not do, with the exact words it says so. A gap that closes fails here."""

from __future__ import annotations

from typing import Any

import pytest

import tidemill as tm
from tests.conformance.cases import ARRIVAL, STREAM, TYPICAL
from tests.conformance.harness import on_spark
from tidemill import col


@pytest.mark.parametrize("window", ARRIVAL)
def test_spark_has_no_order_of_arrival(spark: Any, window: str) -> None:
    query = STREAM.group_by("k").window(ARRIVAL[window]).agg(n=tm.count())
    missing = "expected order_by= on Spark, where rows have no order of arrival"
    with pytest.raises(tm.UserError, match=missing):
        on_spark(spark, query, TYPICAL)


@pytest.mark.parametrize("column", ["x", "b"])
def test_hll_counts_ints_strings_and_instants_only(column: str) -> None:
    with pytest.raises(tm.UserError, match="expected an int, a string or a timestamp"):
        STREAM.window(tm.tumbling(4)).agg(n=tm.distinct_count(col[column], method="hll"))


def test_windows_of_several_partitions_or_attributes_need_a_query_each() -> None:
    with pytest.raises(tm.UserError, match="expected windows over one attribute and one partition"):
        STREAM.window(a=tm.tumbling(4), b=tm.tumbling(4, on="u")).agg(n=tm.count())
