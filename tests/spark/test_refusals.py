"""Streams are refused at once, and `explain` says before a run which plan an exchange takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tidemill import col
from tidemill.core.errors import UserError

pytest.importorskip("pyspark")

from tidemill.spark.dia import from_frame, generate
from tidemill.spark.exchange import colocate, decision, group_by_key, join, place, reduce_by_key

STREAM = tm.stream("rows", time="t", schema={"t": "int64", "k": "string", "v": "int64"})
SESSIONS = STREAM.group_by("k").window(tm.session(3)).agg(n=tm.count())
PANES = STREAM.group_by("k").window(tm.hopping(30, every=10)).agg(s=tm.sum(col.v))

CALLS: dict[str, Callable[[Any, Path], object]] = {
    "run": lambda df, _: SESSIONS.on_spark(df.sparkSession).run(rows=df),
    "explain": lambda df, _: SESSIONS.on_spark(df.sparkSession).explain(rows=df),
    "reduce_by_key": lambda df, _: reduce_by_key(df, ["k"], {"n": tm.count()}),
    "group_by_key": lambda df, _: group_by_key(df, ["k"], lambda t: t, "k string"),
    "join": lambda df, _: join(df, df, ["k"]),
    "colocate": lambda df, _: colocate(df, ["k"]),
    "place": lambda df, _: place(df, ["k"]),
    "from_frame": lambda df, _: from_frame(df),
    "build_wheel": lambda df, path: tm.spark.build_wheel(df, path / "w", tm.count(), time="t"),
    "append": lambda df, path: tm.spark.append(df, path / "w"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_streaming_frame_is_refused(spark: Any, tmp_path: Path, name: str) -> None:
    df = spark.readStream.format("rate").load().selectExpr("value AS t", "'a' AS k", "value AS v")
    with pytest.raises(UserError, match="a DataFrame that ends, got a streaming one — streams are not"):
        CALLS[name](df, tmp_path)
    assert not (tmp_path / "w").exists()


def test_explain_says_which_plan_will_run(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sums = generate(spark, 6).map(lambda i: (i % 2, i)).reduce_pair(lambda a, b: a + b)
    shuffle = "shuffle: a partial for each key and partition; "
    one_host = "plain — all is on one host"
    assert one_host in str(PANES.on_spark(spark).explain())
    assert shuffle + one_host in str(sums.explain())
    monkeypatch.setattr(decision, "host_count", lambda spark: 2)
    open_ = "plain or detecting — detect='auto' decides by the size of the input"
    assert open_ in str(PANES.on_spark(spark).explain())
    assert shuffle + open_ in str(sums.explain())
    assert "detects — detect='on'" in str(PANES.on_spark(spark, detect="on").explain())
    assert "plain — detect='off'" in str(PANES.on_spark(spark, detect="off").explain())
