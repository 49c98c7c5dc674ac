"""Random scripts of pushes, promises, late rows, snapshots and restores, against the definition.

A script is made of a seed, so that a failure can be played again: `played(seed)`.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tests.examples import TIMES
from tidemill import col
from tidemill.core.errors import UserError
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.local.snapshot import from_bytes, to_bytes
from tidemill.local.tuning import Tuning
from tidemill.local.window_operator import WindowOperator
from tidemill.plan.nodes import Source, WindowAggregate
from tidemill.windows.spec import GridWindow, PerEvent, Window

STREAM = tm.stream("s", time="t", schema={"t": "int64", "a": "int64", "b": "string", "x": "int64"})
TUNINGS = (
    Tuning(),
    Tuning(few_partials=0, output_rows=3, few_keys=3, held_text=0),
    Tuning(few_partials=0, many_partials=2, plane_bytes=0, few_keys=0, held_text=3000),
    Tuning(few_partials=3, few_keys=1, few_strings=1, backlog=1),
)
Key = tuple[Any, ...]
Event = tuple[Key, int, int, int]
"""Key, time, what was promised of the key when the row came, and its value."""


def a_window(pick: random.Random) -> Window:
    more: dict[str, Any] = {}
    if pick.random() < 0.3:
        more["start"] = pick.randint(-8, 20)
    if pick.random() < 0.3:
        more["origin"] = pick.randint(-7, 7)
    kind = pick.choice(["tumbling", "hopping", "sampling", "per_event"])
    if kind == "tumbling":
        return tm.tumbling(pick.randint(1, 9), **more)
    if kind == "hopping":
        return tm.hopping(pick.randint(2, 14), every=pick.randint(1, 5), **more)
    if kind == "sampling":
        every = pick.randint(3, 9)
        return tm.hopping(pick.randint(1, every - 1), every=every, **more)
    return tm.per_event(pick.randint(1, 9))


def expected(window: Window, label: str | None, events: list[Event]) -> dict[Any, int]:
    """The sum of each window: a row counts in those that were not complete when it came."""
    found: dict[Any, int] = defaultdict(int)
    if isinstance(window, PerEvent):
        length = window.range.ticks
        for key, end in {(k, t) for k, t, promised, _ in events if t >= promised}:
            for other, t, promised, x in events:
                if other == key and end - length < t <= end and promised <= end:
                    found[key, label, end - length, end] += x
        return found
    assert isinstance(window, GridWindow) and window.length is not None
    for key, t, promised, x in events:
        if window.start is not None and t < window.start:
            continue
        wid = (t - window.origin) // window.slide
        while (low := window.origin + (wid + 1) * window.slide - window.length) <= t:
            high = low + window.length
            if t < high and high > promised:
                found[key, label, low if window.start is None else max(low, window.start), high] += x
            wid += 1
    return found


def played(seed: int) -> None:
    """One random script, compared with the definition; promises must be kept."""
    pick = random.Random(seed)
    keys = pick.choice([("a",), ("b",), ("a", "b")])
    windows = [a_window(pick) for _ in range(pick.choice([1, 1, 1, 2]))]
    grouped = STREAM.group_by(*keys)
    labelled = grouped.window(windows[0]) if len(windows) == 1 else grouped.window(**dict(zip("uv", windows)))
    aggregates = {"n": tm.sum(col.x)} | ({"c": tm.collect(col.x)} if pick.random() < 0.3 else {})
    try:
        plan = labelled.agg(**aggregates).optimized
    except UserError:
        return  # two windows that do not go together
    assert isinstance(plan, WindowAggregate)
    [source] = (node for node in plan.walk() if isinstance(node, Source))
    tuning, arrow = pick.choice(TUNINGS), source.schema.to_arrow()
    operator = WindowOperator(plan, pick.choice((1, 2, 4)), tuning=tuning)
    floor, apart, now = BEGINNING, dict[Key, int](), -20
    events, late, rows = list[Event](), list[int](), list[dict[str, Any]]()

    def promised(key: Key) -> int:
        return max(floor, apart.get(key, BEGINNING))

    def gave(batches: Any) -> None:
        before = operator.promise.common
        for batch in batches:
            for row in batch.to_pylist():
                assert row["window_start"] >= before, f"promised {before}, gave {row}"
                rows.append(row)

    try:
        for step in range(pick.randint(2, 12)):
            now += pick.randint(0, 8)
            batch = []
            for _ in range(pick.randint(0, 7)):
                t = now + pick.randint(-12, 9) if pick.random() < 0.5 else max(now, 0) + pick.randint(0, 9)
                a = pick.choice([None, 0, 1, 2]) if pick.random() < 0.6 else step * 3 + pick.randint(0, 2)
                b = pick.choice([None, "", "p", "q"]) if pick.random() < 0.6 else f"s{step}"
                batch.append({"t": t, "a": a, "b": b, "x": len(events) + len(batch) + 1})
            for row in batch:
                key = tuple(row[c] for c in keys)
                events.append((key, row["t"], promised(key), row["x"]))
                if row["t"] < promised(key):
                    late.append(row["x"])
            needed = [{c: row[c] for c in arrow.names} for row in batch]
            operator.push(0, pa.RecordBatch.from_pylist(needed, arrow))
            if pick.random() < 0.5:
                below = now + pick.randint(-3, 12)
                some = [
                    {"a": pick.choice([None, 0, 1, 2, 50]), "b": pick.choice([None, "", "p", f"s{step}"])}
                    for _ in range(pick.randint(0, 3))
                ]
                for one in some:
                    key = tuple(one[c] for c in keys)
                    apart[key] = max(apart.get(key, BEGINNING), below)
                columns = {c: pa.array([one[c] for one in some], arrow.field(c).type) for c in keys}
                gave(operator.advance_keys(0, columns, below, prompt=pick.random() < 0.5))
            if pick.random() < 0.7:
                floor = max(floor, now)
                gave(operator.advance(0, now, prompt=pick.random() < 0.5))
            if pick.random() < 0.3:
                state = from_bytes(to_bytes(operator.snapshot()))
                if pick.random() < 0.7:
                    operator.close()
                    operator = WindowOperator(plan, pick.choice((1, 2, 4)), tuning=tuning)
                    operator.restore(state)
        gave(operator.advance(0, FOREVER))
        got_late = operator.late()["x"].to_pylist()
    finally:
        operator.close()
    want: dict[Any, int] = {}
    for at, window in enumerate(windows):
        want |= expected(window, None if len(windows) == 1 else "uv"[at], events)
    got = {
        (tuple(r[c] for c in keys), r.get("window"), r["window_start"], r["window_end"]): r["n"] for r in rows
    }
    assert len(got) == len(rows), "a window came twice"
    assert got == want
    assert sorted(got_late) == sorted(late)


@pytest.mark.parametrize("first", range(4))
def test_a_script_gives_what_the_definition_says(first: int) -> None:
    for seed in range(first * 10_000, first * 10_000 + 25 * TIMES):
        try:
            played(seed)
        except Exception as failed:
            raise AssertionError(f"played({seed})") from failed
