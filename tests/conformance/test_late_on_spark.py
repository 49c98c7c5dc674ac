"""The same rows are late in process and on Spark, where a column says in which order they arrived."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.harness import assert_same
from tidemill.core.batch import to_rows

CLOCK = tm.stream("s", time="t", schema={"t": "timestamp", "k": "int64", "at": "int64"})
EPOCH = datetime(2026, 3, 1, tzinfo=UTC)


def rows(seed: int) -> list[dict[str, Any]]:
    pick = random.Random(seed)
    found = []
    for n in range(200):
        back = pick.choice([0, 0, 0, 5, 40, 400])
        time = EPOCH + timedelta(seconds=10 * n - back) if pick.random() > 0.03 else None
        found.append({"t": time, "k": pick.randint(0, 3), "at": 1000 * n})  # several stretches
    return found


@pytest.mark.parametrize("policy", [{"consistent": True}, {"late": "adjust"}], ids=str)
def test_late_rows_are_the_same(spark: Any, policy: dict[str, Any]) -> None:
    query = CLOCK.group_by("k").window(tm.tumbling("1m")).agg(n=tm.count())
    given, disorder = rows(1), tm.Disorder(slack="20s", **policy)
    expected = query.run(s=given, disorder=disorder)
    reasons = {n: int(expected.schema.metadata[f"tidemill.{n}".encode()]) for n in ("late", "null_time")}
    assert min(reasons.values()) > 1
    shuffled = given[:]
    random.Random(2).shuffle(shuffled)
    frame = spark.createDataFrame(pa.Table.from_pylist(shuffled, schema=CLOCK.schema.to_arrow()))
    on_spark = query.on_spark(spark)
    found = on_spark.run(s=frame, disorder=disorder, arrival="at").toArrow()
    assert_same(
        to_rows(found.cast(query.schema.to_arrow()).to_batches(), query.schema),
        to_rows(expected.to_batches(), query.schema), query.schema,
    )  # fmt: skip
    late = on_spark.late(disorder, arrival="at", s=frame).toPandas()
    counted = late.groupby("late_reason").size().to_dict()
    assert {n.replace(" ", "_"): c for n, c in counted.items()} == reasons


def test_what_spark_cannot_tell_is_refused(spark: Any) -> None:
    query = CLOCK.window(tm.tumbling("1m")).agg(n=tm.count()).on_spark(spark)
    frame = spark.createDataFrame(pa.Table.from_pylist(rows(3), schema=CLOCK.schema.to_arrow()))
    with pytest.raises(tm.UnsupportedError, match="consistent=True"):
        query.run(s=frame, disorder=tm.Disorder(slack="1s"), arrival="at")
    with pytest.raises(tm.UserError, match="the column by which rows arrived"):
        query.run(s=frame, disorder=tm.Disorder(slack="1s", consistent=True))
    with pytest.raises(tm.UserError, match=r"arrival= a column of"):
        query.run(s=frame, disorder=tm.Disorder(slack="1s", consistent=True), arrival="came")
