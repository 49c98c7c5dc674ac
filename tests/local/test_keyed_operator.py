"""An advance of an operator with keys works on the rows of keys of which something starts or ends."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tidemill import col
from tidemill.core.time import FOREVER
from tidemill.local.cut_operator import CutOperator
from tidemill.local.join_operator import JoinOperator
from tidemill.local.keyed_operator import KeyedOperator
from tidemill.local.snapshot_operator import SnapshotOperator
from tidemill.local.tuning import Tuning
from tidemill.plan.temporal import Cut, Join, Temporal

KEYS, ROWS = 50, 800
A, B = (
    tm.stream(n, time="t", end="u", schema={"t": "int64", "u": "int64", "k": "int64"}) for n in "ab"
)
QUERIES = {
    "join": A.join(B, on="k"),
    "outer": A.join(B, on="k", how="outer"),
    "exists": A.where_exists(B, on="k"),
    "not exists": A.where_not_exists(B, on="k"),
    "clip": A.clip(B, on="k"),
    "snapshot": A.group_by("k").agg(n=tm.count()),
    "snapshot, not exact": A.group_by("k").agg(last=tm.max(col.t)),
}


def _operator(name: str, few: int) -> tuple[KeyedOperator, list[int]]:
    """An operator, and how many rows it works on at each advance."""
    seen: list[int] = []
    plan = QUERIES[name].optimized
    kind: Any = {Join: JoinOperator, Cut: CutOperator}.get(type(plan), SnapshotOperator)

    class Watched(kind):  # type: ignore[misc]
        def _work(self, sides: Any, below: int) -> Any:
            seen.append(sum(side.rows.num_rows for side in sides))
            return super()._work(sides, below)

    assert isinstance(plan, Temporal)
    return Watched(plan, Tuning(few_kept=few, few_waiting=0)), seen


def _rows(*rows: tuple[int, int | None, int]) -> pa.RecordBatch:
    t, u, k = zip(*rows)
    return pa.record_batch({"t": pa.array(t), "u": pa.array(u, pa.int64()), "k": pa.array(k)})


def _driven(name: str, operator: KeyedOperator, ports: int) -> list[Any]:
    """Many rows that hold, and then a few that come one by one, some of which end soon."""
    found = []
    for port in range(ports if name != "clip" else 1):  # which keeps rows until others start
        operator.push(
            port, _rows(*((i % 7, None if i % 3 else 5_000 + i, i % KEYS) for i in range(ROWS)))
        )
    for t in range(10, 60):
        operator.push(t % ports, _rows((t, t + 3 if t % 2 else None, t * 7 % KEYS)))
        if t == 40:
            operator.restore(operator.snapshot())
        for port in range(ports):
            found += list(operator.advance(port, t, prompt=True))
    promised = operator.promise.common
    for port in range(ports):
        found += list(operator.advance(port, FOREVER))
    return [promised, sorted(str(row) for batch in found for row in batch.to_pylist())]


@pytest.mark.parametrize("name", QUERIES)
def test_an_advance_does_not_look_at_other_keys(name: str) -> None:
    ports = 1 if "snapshot" in name else 2
    (few, seen), (all_, seen_all) = _operator(name, 10), _operator(name, FOREVER)
    assert _driven(name, few, ports) == _driven(name, all_, ports)
    each = ROWS // KEYS * ports
    small = [rows for rows in seen[2:-1] if rows < ROWS]
    assert len(small) >= 40 and sorted(small)[len(small) // 2] < 4 * each + 200
    assert min(seen_all[2:]) >= ROWS // 2


def test_what_lies_apart_is_counted_and_saved() -> None:
    operator, _ = _operator("snapshot", 10)
    operator.push(0, _rows(*((i % 7, None, i % KEYS) for i in range(ROWS))))
    list(operator.advance(0, 8, prompt=True))
    before = operator.size()[0]
    operator.push(0, _rows((8, 9, 5)))
    list(operator.advance(0, 9, prompt=True))
    assert operator.size()[0] == before + 1
    assert operator.snapshot()["kept0"].num_rows == ROWS + 1
    assert operator.snapshot()["open"].num_rows == KEYS
