"""Snapshots by one pass over edges: compiled, on many rows, and where results do not fit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tidemill import col
from tidemill.core.errors import UserError
from tidemill.local.edge_sweep import sweeps
from tidemill.local.run import run
from tidemill.local.tuning import Tuning
from tidemill.plan.temporal import SnapshotAggregate

S = tm.stream("s", time="t", end="u", schema={"t": "int64", "u": "int64", "k": "int64", "v": "int64"})


def _rows(n: int) -> pa.Table:
    rng = np.random.default_rng(3)
    start = np.sort(rng.integers(0, 4 * n, n))
    values = pa.array(rng.integers(-9, 9, n), mask=rng.random(n) < 0.2)
    end, key = start + rng.integers(1, 60, n), rng.integers(0, 40, n)
    return pa.table({"t": start, "u": end, "k": key, "v": values})


@pytest.mark.compiled
@pytest.mark.parametrize("keys", [["k"], []])
def test_the_same_as_by_keys(keys: list[str]) -> None:
    grouped = S.group_by(*keys) if keys else S
    odd = tm.count_if(col.v % 2 == 1)
    query = grouped.agg(n=tm.count(), total=tm.sum(col.v), mean=tm.mean(col.v), odd=odd)
    rows = _rows(3_000)
    found = []
    for tuning in (Tuning(few_waiting=500), Tuning(few_waiting=500, snapshots=("copies",))):
        table = pa.Table.from_batches(run(query.optimized, {"s": rows}, tuning=tuning))
        found.append(sorted(map(str, table.to_pylist())))
    assert found[0] == found[1] and len(found[0]) > 3_000


def test_which_aggregates_it_has() -> None:
    def swept(**aggregates: object) -> bool:
        plan = S.agg(**aggregates).optimized
        assert isinstance(plan, SnapshotAggregate)
        return sweeps(plan)

    assert swept(n=tm.count(), total=tm.sum(col.v)) and swept(mean=tm.mean(col.v))
    assert not swept(most=tm.max(col.v))  # a maximum cannot be taken out
    assert not swept(n=tm.count(), total=tm.sum(col.v.cast("float64")))  # nor can a float, exactly
    assert not swept(c=tm.collect(col.v))


def test_a_sum_that_does_not_fit_is_an_error_only_while_it_holds() -> None:
    big = (1 << 62) + 1
    query = S.agg(total=tm.sum(col.v))
    apart = [{"t": 0, "u": 5, "k": 1, "v": big}, {"t": 5, "u": 9, "k": 1, "v": big}]
    assert [r["total"] for r in query.run(s=apart).to_pylist()] == [big]
    together = [{"t": 0, "u": 6, "k": 1, "v": big}, {"t": 5, "u": 9, "k": 1, "v": big}]
    with pytest.raises(UserError, match="integer overflow"):
        query.run(s=together)
