"""What hands write for the first rows of a result, and what they get."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.csv
import pytest

import tidemill as tm
from tidemill import col

STREAM = tm.stream("s", time="t", schema={"t": "timestamp", "k": "int64", "v": "list<int64>"})
ROWS = [{"t": datetime(2026, 1, 1, hour), "k": hour % 3, "v": [1]} for hour in range(7)]
COUNTS = STREAM.group_by("k").window(tm.tumbling("1d")).agg(tm.count())


def test_asked_for_the_three_busiest(tmp_path: Path) -> None:
    best = COUNTS.sort("count", descending=True).limit(2)
    assert best.run(ROWS).select(["k", "count"]).to_pylist() == [{"k": 0, "count": 3}, {"k": 1, "count": 2}]
    assert best.to_pandas(ROWS)["k"].tolist() == best.to_polars(ROWS)["k"].to_list() == [0, 1]
    assert best.to_csv(tmp_path / "best.csv", ROWS) == 2
    assert pyarrow.csv.read_csv(tmp_path / "best.csv")["k"].to_pylist() == [0, 1]
    assert COUNTS.sort(col.count, descending=True).limit(2).run(ROWS) == best.run(ROWS)


def test_looked_at_what_an_order_is() -> None:
    best = COUNTS.sort("count", descending=True).limit(2)
    assert repr(best).splitlines()[:2] == [
        "sort by count descending, limit 2", "  aggregate count=count() by k over tumbling(1d)",
    ]  # fmt: skip
    assert best.explain().sections["result"].startswith("sort by count descending, limit 2")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: COUNTS.sort(), "sort: expected at least one column"),
        (lambda: COUNTS.sort("cuont"), "did you mean 'count'"),
        (lambda: COUNTS.sort(-col.count), "compute it first.*descending=True"),
        (lambda: COUNTS.sort("count", "count"), "each column once"),
        (lambda: COUNTS.sort("count", descending="yes"), "True or False"),
        (lambda: COUNTS.sort("count", "k", descending=[True]), "one for each column"),
        (lambda: STREAM.sort("v"), "'v' that is ordered, got list"),
        (lambda: COUNTS.sort(3), "by name, got 3"),
        (lambda: COUNTS.limit(-1), "a number of rows"),
        (lambda: COUNTS.limit("3"), "a number of rows"),
    ],
)
def test_wrote_an_order_that_is_none(ask: Any, message: str) -> None:
    with pytest.raises(tm.UserError, match=message):
        ask()
