"""Live queries give the answer of a query over all their rows, however rows, promises and restarts come.

Every kind of window and every family of aggregates is pushed in random batches, with true punctuations of the
whole stream and of keys, and is saved and restored between any two calls.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.cases import ARRIVAL, COMBINATIONS, SOME, TYPICAL, WINDOWS, Row, ask, seeded
from tests.conformance.harness import arrivals, assert_same, locally, split, table_of
from tests.examples import later
from tidemill.core.batch import to_rows
from tidemill.local.live import Live
from tidemill.stream import Stream


def rows_of(query: Stream, tables: list[pa.Table]) -> list[Row]:
    return to_rows([b for table in tables for b in table.to_batches()], query.schema)


def going_on(query: Stream, rows: list[Row], pick: random.Random, folder: Path) -> tuple[Live, list[Row]]:
    """Push rows in random batches; between them, random things that do not change the answer."""
    live, found = query.live(threads=pick.choice([1, 2])), []
    given = split(rows, pick)
    for at, some in enumerate(given):
        found.append(live.push(s=table_of(query, some)))
        rest = [row for later in given[at + 1 :] for row in later]
        for _ in range(pick.randint(0, 2)):
            what = pick.choice(["punctuate", "punctuate keys", "advance", "restore", "save changes"])
            if what == "punctuate" and rest:
                found.append(live.punctuate(min(row["t"] for row in rest)))
            elif what == "punctuate keys" and some and rest:
                key = pick.choice(some)["k"]
                left = [row["t"] for row in rest if row["k"] == key]
                found.append(live.punctuate(min(left, default=100), key={"k": key}))
            elif what == "advance":
                found.append(live.advance())
            elif what == "save changes":
                live.checkpoint(folder / "saved changes", keep=2)
            elif what == "restore":
                saved, keep = pick.choice([(folder / "saved", None), (folder / "saved changes", 2)])
                live.checkpoint(saved, keep=keep)
                live.close()
                live = tm.restore(query, saved, threads=pick.choice([1, 2]))
    found.append(live.flush())
    return live, rows_of(query, found)


@pytest.mark.parametrize(("window", "family"), COMBINATIONS)
def test_every_window_and_aggregate(window: str, family: str, tmp_path: Path) -> None:
    query = ask(WINDOWS[window], family, "k")
    pick = random.Random(f"{window} {family}")
    expected = locally(query, TYPICAL)
    order = pick.choice(list(arrivals(TYPICAL, "t", pick).values()))
    live, got = going_on(query, order, pick, tmp_path)
    assert_same(got, expected, query.schema)
    stats = live.stats()
    assert (stats.events, stats.late, stats.rows_out) == (len(TYPICAL), 0, len(got))


@pytest.mark.parametrize("seed", [1, 2, *later(*range(3, 30))])
@pytest.mark.parametrize("window", [*SOME, "landmark", "hopping, filled"])
def test_any_order_and_any_restart(window: str, seed: int, tmp_path: Path) -> None:
    rows, pick = seeded(150, seed=seed, span=120, keys=6), random.Random(seed)
    query = ask(WINDOWS[window], "one of each", "k")
    expected = locally(query, rows)
    for arrived in arrivals(rows, "t", pick).values():
        _, got = going_on(query, arrived, pick, tmp_path)
        assert_same(got, expected, query.schema)


@pytest.mark.parametrize("window", ARRIVAL)
def test_windows_that_count_arrivals(window: str, tmp_path: Path) -> None:
    query = ask(ARRIVAL[window], "one of each", "k")
    _, got = going_on(query, TYPICAL, random.Random(window), tmp_path)
    assert_same(got, locally(query, TYPICAL), query.schema)


# --- policies ---------------------------------------------------------------------------------------


def pushed(
    query: Stream, rows: list[Row], policy: tm.Disorder, pick: random.Random
) -> tuple[Live, list[Row]]:
    live = query.live(policy)
    found = [live.push(s=table_of(query, some)) for some in split(rows, pick)]
    found.append(live.flush())
    return live, rows_of(query, found)


@pytest.mark.parametrize("window", [*SOME, "per_event"])
def test_disorder_within_the_slack_does_not_matter(window: str) -> None:
    query, pick = ask(WINDOWS[window], "one of each", "k"), random.Random(window)
    for _ in range(3):
        arrived = arrivals(TYPICAL, "t", pick)["jittered"]  # by up to 4
        live, got = pushed(query, arrived, tm.Disorder(slack=4), pick)
        assert live.stats().late == 0
        assert_same(got, locally(query, TYPICAL), query.schema)


def late_rows(live: Live) -> list[Row]:
    return [{n: v for n, v in row.items() if n != "late_reason"} for row in live.late().to_pylist()]


@pytest.mark.parametrize("window", [*SOME, "per_event", "hopping, sampling"])
def test_a_consistent_result_is_that_of_the_accepted_rows(window: str) -> None:
    query, pick = ask(WINDOWS[window], "one of each", "k"), random.Random(window)
    dropped = 0
    for _ in range(6):
        arrived = arrivals(TYPICAL, "t", pick)["shuffled"]
        live, got = pushed(query, arrived, tm.Disorder(slack=6, consistent=True), pick)
        late = late_rows(live)
        dropped += len(late)
        assert len(late) == live.stats().late < len(arrived)
        left = list(late)
        accepted = [row for row in arrived if not _among(row, left)]
        assert not left and len(accepted) == len(arrived) - len(late)
        assert_same(got, locally(query, accepted), query.schema)
    assert dropped


def _among(row: Row, late: list[Row]) -> bool:
    """Whether a row is among the late ones, of which it takes one."""
    for at, other in enumerate(late):
        if all(row[n] == v or (v != v and row[n] != row[n]) for n, v in other.items()):
            del late[at]
            return True
    return False


def simulated(rows: list[Row], slack: int) -> list[tuple[Row, int]]:
    """Each row with the watermark when it came."""
    found, watermark, latest = [], -(1 << 62), -(1 << 62)
    for row in rows:
        found.append((row, watermark))
        latest = max(latest, row["t"])
        watermark = max(watermark, latest - slack)
    return found


STREAM = tm.stream("s", time="t", schema={"t": "int64", "k": "int64"})
HOPS = STREAM.group_by("k").window(tm.hopping(6, every=2)).agg(n=tm.count())


def test_a_late_row_counts_in_the_windows_that_are_not_complete() -> None:
    for seed in range(8):
        pick = random.Random(seed)
        rows = [{"t": pick.randint(0, 40), "k": pick.randint(0, 2)} for _ in range(80)]
        batches = split(rows, pick)
        live = HOPS.live(tm.Disorder(slack=3))
        found = [live.push(s=batch) for batch in batches] + [live.flush()]
        expected: dict[tuple[int, int], int] = {}
        late = 0
        for row, watermark in simulated(rows, 3):
            late += row["t"] < watermark
            for end in range(row["t"] // 2 * 2 + 2, row["t"] // 2 * 2 + 8, 2):
                if end > watermark:
                    expected[row["k"], end] = expected.get((row["k"], end), 0) + 1
        got = {(r["k"], r["window_end"]): r["n"] for r in rows_of(HOPS, found)}
        assert got == expected
        assert live.stats().late == late == live.late().num_rows


def test_an_adjusted_row_has_the_time_of_the_watermark() -> None:
    for seed in range(8):
        pick = random.Random(seed)
        rows = [{"t": pick.randint(0, 40), "k": pick.randint(0, 2)} for _ in range(80)]
        batches = split(rows, pick)
        live = HOPS.live(tm.Disorder(slack=3, late="adjust"))
        found = [live.push(s=batch) for batch in batches] + [live.flush()]
        moved = [{**row, "t": max(row["t"], watermark)} for row, watermark in simulated(rows, 3)]
        assert_same(rows_of(HOPS, found), HOPS.run(s=moved).to_pylist(), HOPS.schema)
        assert live.late().num_rows == sum(a != b for a, b in zip(rows, moved))
        assert all(row in rows for row in late_rows(live)), "as they came"


@pytest.mark.parametrize("window", [*SOME, "per_event"])
@pytest.mark.parametrize("policy", [{}, {"consistent": True}, {"late": "adjust"}], ids=str)
def test_late_rows_do_not_depend_on_batches(window: str, policy: dict[str, Any]) -> None:
    query, pick = ask(WINDOWS[window], "one of each", "k"), random.Random(window)
    arrived = arrivals(TYPICAL, "t", pick)["shuffled"]
    expected, late = None, -1
    for split_up in ([[row] for row in arrived], [arrived], split(arrived, pick), split(arrived, pick)):
        live = query.live(tm.Disorder(slack=6, **policy))
        found = [live.push(s=table_of(query, some)) for some in split_up] + [live.flush()]
        rows = rows_of(query, found)
        if expected is None:
            expected, late = rows, live.stats().late
        assert live.stats().late == late == live.late().num_rows > 0
        assert_same(rows, expected, query.schema)


def test_two_inputs_wait_for_each_other(tmp_path: Path) -> None:
    shop, web = (tm.stream(name, time="t", schema={"t": "int64", "k": "int64"}) for name in ("shop", "web"))
    query = shop.union(web).group_by("k").window(tm.tumbling(10)).agg(n=tm.count())
    for seed in range(6):
        pick = random.Random(seed)
        sides: dict[str, list[dict[str, Any]]] = {}
        for name in ("shop", "web"):
            times = sorted(pick.randint(0, 90) for _ in range(60))
            sides[name] = [{"t": t, "k": pick.randint(0, 2)} for t in times]
        expected = query.run(**sides).to_pylist()
        live, found = query.live(tm.Disorder(slack=0)), []
        left = {name: split(rows, pick) for name, rows in sides.items()}
        while any(left.values()):
            names = [name for name in left if left[name] and pick.random() < 0.7]
            found.append(live.push(**{name: left[name].pop(0) for name in names}))
            if pick.random() < 0.2:
                live.checkpoint(tmp_path / "saved")
                live = tm.restore(query, tmp_path / "saved", tm.Disorder(slack=0))
        found.append(live.flush())
        assert_same(rows_of(query, found), expected, query.schema)
        assert live.stats().late == 0
