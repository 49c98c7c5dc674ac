"""Windows over another attribute than the time close when the input promises something about it.

Paper 003, 7.1: flows arrive in order of their end, and are windowed by their start.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.conformance.harness import assert_same, by_reference, split, table_of
from tests.conformance.test_live import late_rows, rows_of
from tests.examples import later
from tidemill import col
from tidemill.core.time import BEGINNING
from tidemill.local.live import Live

Row = dict[str, Any]
FLOWS = tm.stream(
    "s", time="end",
    schema={"end": "int64", "start": "int64", "k": "int64", "x": "float64", "age": "duration"},
)  # fmt: skip

CASES: dict[str, tuple[tm.Window, Any, Callable[[Row], Any]]] = {
    "tumbling": (tm.tumbling(10, on="start"), "start", lambda r: r["start"]),
    "hopping": (tm.hopping(12, every=4, on="start"), col.start, lambda r: r["start"]),
    "landmark": (tm.landmark(10, start=0, on="start"), "start", lambda r: r["start"]),
    "session": (tm.session(4, on="start"), "start", lambda r: r["start"]),
    "each event": (tm.per_event(9, on="start"), "start", lambda r: r["start"]),
    "expression": (
        tm.tumbling(6, on=col.end - col.start), lambda e: e.end - e.start, lambda r: r["end"] - r["start"],
    ),
    "floats": (tm.hopping(0.5, every=0.25, on="x"), "x", lambda r: r["x"]),
    "durations": (tm.tumbling("3s", on="age"), "age", lambda r: r["age"]),
}  # fmt: skip


def ask(case: str) -> Any:
    return FLOWS.group_by("k").window(CASES[case][0]).agg(n=tm.count(), last=tm.max(col.end))


def seeded(size: int, seed: int) -> list[Row]:
    pick, rows = random.Random(seed), []
    for _ in range(size):
        start = pick.randint(0, 60)
        rows.append(
            {
                "end": start + pick.randint(0, 15), "start": start, "k": pick.randint(0, 2),
                "x": pick.randint(0, 40) / 10, "age": pick.randint(0, 20) * 500_000,
            }
        )  # fmt: skip
    return sorted(rows, key=lambda r: r["end"])


def by_value(case: str, rows: list[Row], pick: random.Random) -> list[Row]:
    """Rows that come a little out of the order of the attribute: their time says nothing."""
    value = CASES[case][2]
    spread = max(map(value, rows)) / 8
    return sorted(rows, key=lambda r: value(r) + pick.random() * spread)


def going_on(case: str, rows: list[Row], pick: random.Random, folder: Path) -> tuple[Live, list[Row]]:
    query, (_, on, value) = ask(case), CASES[case]
    live, found, batches = query.live(threads=pick.choice([1, 2])), [], split(rows, pick)
    for at, batch in enumerate(batches):
        found.append(live.push(s=table_of(query, batch)))
        rest = [r for later in batches[at + 1 :] for r in later]
        if rest and pick.random() < 0.8:
            found.append(live.punctuate(min(map(value, rest)), on=on))
        if rest and batch and pick.random() < 0.5:
            key = pick.choice(batch)["k"]
            left = [value(r) for r in rest if r["k"] == key]
            found.append(live.punctuate(min(left, default=max(map(value, rows))), on=on, key={"k": key}))
        if pick.random() < 0.4:
            live.checkpoint(folder / "saved")
            live.close()
            live = tm.restore(query, folder / "saved", threads=pick.choice([1, 2]))
    found.append(live.flush())
    return live, rows_of(query, found)


@pytest.mark.parametrize("seed", [1, *later(*range(2, 12))])
@pytest.mark.parametrize("case", CASES)
def test_the_answer_is_that_of_all_rows(case: str, seed: int, tmp_path: Path) -> None:
    pick = random.Random(seed)
    rows = by_value(case, seeded(80, seed), pick)
    live, got = going_on(case, rows, pick, tmp_path)
    assert_same(got, by_reference(ask(case), rows), ask(case).schema)
    assert live.stats().late == 0


@pytest.mark.parametrize("case", ["tumbling", "landmark", "expression", "floats", "durations"])
def test_windows_close_at_the_promise(case: str) -> None:
    query, (_, on, value) = ask(case), CASES[case]
    rows = by_value(case, seeded(80, 7), random.Random(7))
    live = query.live()
    assert live.push(s=table_of(query, rows[:60])).num_rows == 0
    below = min(value(r) for r in rows[60:])
    got = rows_of(query, [live.punctuate(below, on=on)])
    complete = [r for r in by_reference(query, rows) if r["window_end"] <= below]
    if case == "landmark":  # how far its windows go on, rows to come say
        seen = max(value(r) for r in rows[:60])
        complete = [r for r in complete if r["window_end"] <= seen + 10]
    assert got and complete
    assert_same(got, complete, query.schema)
    assert live.stats().inputs["s"].watermark == BEGINNING, "nothing is known of the time"


def test_the_promise_of_a_key_closes_its_windows_only() -> None:
    query = ask("tumbling")
    rows = [{"end": 99, "start": s, "k": k, "x": 0.0, "age": 0} for k in (0, 1) for s in (3, 14)]
    live = query.live()
    live.push(s=table_of(query, rows))
    closed = rows_of(query, [live.punctuate(10, on="start", key={"k": 1})])
    assert [(r["k"], r["window_start"]) for r in closed] == [(1, 0)]
    live.push(s=table_of(query, [{**rows[0], "k": 0}, {**rows[0], "k": 1}]))
    assert [r["k"] for r in late_rows(live)] == [1]


@pytest.mark.parametrize("policy", ["drop", "consistent", "adjust"])
def test_a_row_below_the_promise_is_late(policy: str, tmp_path: Path) -> None:
    query = ask("hopping")
    disorder = tm.Disorder(consistent=policy == "consistent", late="adjust" if policy == "adjust" else "drop")
    live, found, accepted, late = query.live(disorder), [], [], 0
    pick, below = random.Random(3), -100
    for batch in split(pick.sample(seeded(80, 3), 80), pick):
        found.append(live.push(s=table_of(query, batch)))
        late += sum(r["start"] < below for r in batch)
        accepted += [(r, below) for r in batch]
        below = max(below, max((r["start"] for r in batch), default=-100) - 15)
        found.append(live.punctuate(below, on="start"))
        live.checkpoint(tmp_path / "saved")
        live = tm.restore(query, tmp_path / "saved", disorder)
    found.append(live.flush())
    assert late == live.stats().late == live.late().num_rows > 5
    expected: dict[tuple[int, int], int] = {}
    for row, promised in accepted:
        if policy == "consistent" and row["start"] < promised:
            continue
        first = row["start"] // 4 * 4 + 4
        for end in range(first, first + 12, 4):
            if end > promised:
                expected[row["k"], end] = expected.get((row["k"], end), 0) + 1
    assert {(r["k"], r["window_end"]): r["n"] for r in rows_of(query, found)} == expected


def test_results_of_windows_by_start_go_on_to_windows_above() -> None:
    """What the lower windows promise closes the upper ones."""
    lower = FLOWS.window(tm.tumbling(5, on="start")).agg(n=tm.count())
    query = lower.window(tm.tumbling(10)).agg(n=tm.sum(col.n))
    live = query.live()
    live.push(s=[{"end": 50, "start": s, "k": 0, "x": 0.0, "age": None} for s in (1, 7, 12, 23)])
    assert rows_of(query, [live.punctuate(20, on="start")]) == [
        {"window_start": 0, "window_end": 10, "n": 2}, {"window_start": 10, "window_end": 20, "n": 1},
    ]  # fmt: skip


# --- what is refused ------------------------------------------------------------------------------


def test_what_is_refused() -> None:
    live = ask("tumbling").live()
    for what, message in (
        (lambda: live.punctuate(3, on="x"), r"on= an attribute of windows that read this input: \['start'\]"),
        (lambda: live.punctuate(3, on=col.start + 1), "on= an attribute of windows"),
        (lambda: live.punctuate(2.5, on="start"), "expected an int"),
        (lambda: live.punctuate("2026-01-01", on="start"), "expected an int"),
        (lambda: live.punctuate(1 << 62, on="start"), r"within 2\*\*61 ticks"),
        (lambda: live.punctuate(3, on="start", key={"nope": 3}), "key columns of s"),
        (lambda: (live.punctuate(9, on="start"), live.punctuate(3, on="start")), "cannot be taken back"),
        (lambda: live.punctuate(7, on="start", key={"k": 1}), "at least 9"),
        (
            lambda: [live.punctuate(t, on="start", key={"k": 1}) for t in (20, 15)],
            "at least 20 .*cannot be taken back",
        ),
        (lambda: ask("floats").live().punctuate(float("nan"), on="x"), "a finite number"),
    ):
        with pytest.raises(tm.UserError, match=message):
            what()
    assert live.push(s=[{"end": 1, "start": 30, "k": 0, "x": 0.0, "age": None}]).num_rows == 0, "it goes on"


def test_on_the_time_itself_is_a_promise_about_time() -> None:
    live = FLOWS.window(tm.tumbling(10)).agg(n=tm.count()).live()
    live.push(s=[{"end": 1, "start": 0, "k": 0, "x": 0.0, "age": None}])
    assert live.punctuate(10, on="end").num_rows == 1
    assert live.stats().inputs["s"].watermark == 10
