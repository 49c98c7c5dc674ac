"""Decimals, lists and bytes pass through queries; they are no keys, and nothing is computed with them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.harness import by_reference
from tidemill import col
from tidemill.stream import Stream

COLUMNS = {"t": "int64", "k": "int64", "p": "decimal(9, 2)", "l": "list<int64>", "b": "binary"}
S = tm.stream("s", time="t", schema=COLUMNS)
ROWS = [
    {"t": 1, "k": 1, "p": Decimal("1.50"), "l": [1], "b": b"x"},
    {"t": 4, "k": 1, "p": Decimal("2.50"), "l": [2, 3], "b": None},
    {"t": 9, "k": 2, "p": None, "l": None, "b": b""},
]
QUERIES: dict[str, Stream] = {
    "where": S.where(col.k > 0),
    "join": S.lasting(5).join(S.where(col.k == 1), on="k"),
    "next": S.until_next("k"),
    "stitch": S.lasting(4).stitch(),
    "top": S.lasting(9).top(1, by="k"),
    "lag": S.lag("k", before="p"),
    "changes": S.lasting(3).changes(),
    "exists": S.lasting(5).where_exists(S.shift(1), on="k"),
}


def table() -> pa.Table:
    wider = pa.array([row["p"] for row in ROWS], pa.decimal128(7, 2))
    arrays = {n: wider if n == "p" else pa.array([row[n] for row in ROWS]) for n in COLUMNS}
    return pa.table(arrays)


def same(given: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    shown = [sorted(repr(sorted(row.items())) for row in rows) for rows in (given, expected)]
    assert shown[0] == shown[1]


@pytest.mark.parametrize("name", QUERIES)
def test_they_pass_through(name: str, tmp_path: Path) -> None:
    query = QUERIES[name]
    expected = by_reference(query, ROWS)
    assert expected
    same(query.run(s=table()).to_pylist(), expected)
    live = query.live()
    found = live.push(s=ROWS[:2]).to_pylist()
    live.checkpoint(tmp_path / "saved")
    live = tm.restore(query, tmp_path / "saved")
    same([*found, *live.push(s=table().slice(2)).to_pylist(), *live.flush().to_pylist()], expected)


def test_they_pass_through_on_spark(spark: Any) -> None:
    frame = spark.createDataFrame(table())
    for name in ("where", "join", "stitch"):
        found = QUERIES[name].on_spark(spark).run(s=frame).toArrow().to_pylist()
        same(found, QUERIES[name].run(s=table()).to_pylist())


@pytest.mark.parametrize(
    "ask",
    [
        lambda: S.group_by("p"), lambda: S.where(col.p > 1), lambda: S.agg(x=tm.sum("p")),
        lambda: S.join(S, on="p"), lambda: S.distinct("p"), lambda: S.select(x=col.p + 1),
    ],
)  # fmt: skip
def test_nothing_is_computed_with_them(ask: Callable[[], Any]) -> None:
    with pytest.raises(tm.UserError, match=r"decimal\(9, 2\)"):
        ask()


def test_other_values_are_refused() -> None:
    with pytest.raises(tm.UserError, match=r"row 1: expected column 'p' of decimal\(9, 2\), got 1\.5"):
        S.run(s=[{**ROWS[0], "p": 1.5}])
