"""Every way of sliding, forced upon the same query, gives what the reference gives."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.harness import assert_same
from tidemill import col
from tidemill.aggregates.algebra import Aggregate
from tidemill.core.batch import from_rows, to_rows
from tidemill.core.time import FOREVER
from tidemill.local.limits import Limits
from tidemill.local.window_operator import WindowOperator
from tidemill.local.window_slides import Progress
from tidemill.optimize.choices import choices_of
from tidemill.plan.nodes import WindowAggregate
from tidemill.reference.run import run as run_reference
from tidemill.windows.spec import Window

STREAM = tm.stream("s", time="t", schema={"t": "int64", "k": "int64", "v": "int64", "x": "float64"})

# All ints and with an inverse: what the user writes may be subtracted as well.
scaled = tm.aggregate(
    "scaled", identity=lambda: (0, 0), lift=lambda v: (v, 1),
    combine=lambda a, b: (a[0] + b[0], a[1] + b[1]), inverse=lambda a, b: (a[0] - b[0], a[1] - b[1]),
    lower=lambda s: s[0] * 10 + s[1],
)  # fmt: skip

AGGREGATES: dict[str, dict[str, Aggregate]] = {
    "invertible": {"n": tm.count(), "mean": tm.mean(col.v), "scaled": scaled(col.v)},
    "not invertible": {"max": tm.max(col.v), "last": tm.last(col.v), "std": tm.std(col.x)},
    "not commutative": {"fall": tm.drawdown(col.x)},
}
PATHS = [
    (name, path)
    for name in AGGREGATES
    for path in ("subtract", "two_stacks", "merge")
    if path != "subtract" or name == "invertible"
]
WINDOWS: dict[str, Window] = {
    "hopping": tm.hopping(12, every=4),
    "with gaps": tm.hopping(3, every=2),
    "per_event": tm.per_event(9),
    "landmark": tm.landmark(5, start=-40),
}


def rows(size: int = 90) -> list[dict[str, Any]]:
    pick = random.Random(12)
    return [
        {
            "t": pick.choice([pick.randint(-30, 30), pick.randint(60, 64)]), "k": pick.randint(0, 2),
            "v": pick.choice([None, *range(-4, 9)]), "x": pick.choice([None, 0.5, -2.0, 7.25, math.nan]),
        }
        for _ in range(size)
    ]  # fmt: skip


def forced(plan: WindowAggregate, path: str) -> list[pa.RecordBatch]:
    """The result of a plan whose state slides in one way, whatever the optimizer would choose."""
    choices = replace(choices_of(plan), sliding=(path,) * len(plan.layout.parts))
    operator = WindowOperator(plan, choices=choices)
    for batch in from_rows(rows(), STREAM.schema).to_batches():
        assert not list(operator.push(0, batch))
    return list(operator.advance(0, FOREVER))


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("name", "path"), PATHS)
def test_path(name: str, path: str, window: str) -> None:
    query = STREAM.group_by("k").window(WINDOWS[window]).agg(**AGGREGATES[name])
    plan = query.optimized
    assert isinstance(plan, WindowAggregate)
    batches = forced(plan, path)
    expected = run_reference(query.plan, {"s": rows()})
    assert_same(to_rows(batches, query.schema), expected, query.schema, f"{name} by {path}")


@pytest.mark.parametrize("path", ["single", "merge"])
def test_windows_side_by_side_need_no_path(path: str) -> None:
    query = STREAM.group_by("k").window(tm.tumbling(4)).agg(n=tm.count(), top=tm.max(col.x))
    plan = query.optimized
    assert isinstance(plan, WindowAggregate) and set(choices_of(plan).sliding) == {"single"}
    got = to_rows(forced(plan, path), query.schema)
    assert_same(got, run_reference(query.plan, {"s": rows()}), query.schema)


def test_floats_are_never_subtracted_so_a_large_value_leaves_nothing_behind() -> None:
    query = STREAM.window(tm.hopping(40, every=4)).agg(total=tm.sum(col.x))
    given = [{"t": t, "k": 0, "v": 0, "x": 1e20 if t == 0 else 0.1} for t in range(60)]
    last = query.run(s=given).to_pylist()[-1]
    assert last["total"] == pytest.approx(0.1 * (60 - last["window_start"]))


GRIDS: dict[str, Window] = {
    "tumbling": tm.tumbling(4), "moved": tm.tumbling(7, origin=3), "hopping": tm.hopping(12, every=5),
    "with gaps": tm.hopping(3, every=4),
}  # fmt: skip


@pytest.mark.parametrize("window", GRIDS)
def test_the_next_watermark_at_which_a_window_closes(window: str) -> None:
    """What `closes_at` says, `closes` says too, for every watermark on the way; below it nothing comes."""
    plan = STREAM.group_by("k").window(GRIDS[window]).agg(n=tm.count()).optimized
    assert isinstance(plan, WindowAggregate)
    operator = WindowOperator(plan)
    for batch in from_rows(rows(), STREAM.schema).to_batches():
        operator.push(0, batch)
    [slide], closed = operator.lanes[0].slides, 0
    list(operator.advance(0, -50, prompt=True))
    for below in range(-49, 80):
        progress = Progress(Limits(below), False, operator.keys.count, np.zeros(1, int), np.zeros(1, int))
        at = slide.closes_at
        assert at is not None and (below >= at) == slide.closes(progress)
        found = list(operator.advance(0, below, prompt=True))
        closed += bool(found)
        assert below >= at or not found
    assert closed > 3


@pytest.mark.parametrize("window", [tm.session(3), tm.rows(3, every=1), tm.per_event(9), tm.landmark(5)])
def test_where_keys_say_when_windows_close_it_is_not_known(window: Window) -> None:
    plan = STREAM.group_by("k").window(window).agg(n=tm.count()).optimized
    assert isinstance(plan, WindowAggregate)
    [slide] = WindowOperator(plan).lanes[0].slides
    assert slide.closes_at is None
