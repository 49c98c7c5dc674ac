"""Servers of features are killed at any moment, and go on from a checkpoint: each row is answered once."""

from __future__ import annotations

import random
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.harness import assert_same
from tests.faults.counts import SOAK, report, seed_of
from tests.faults.test_killed_joins import BATCH, BETWEEN, COLUMNS, ROWS, events
from tests.faults.test_killed_live import KEEP, killed, say_done, written
from tidemill.io.sinks import write_ipc

ASK, BUY = (tm.stream(n, time="t", schema=COLUMNS) for n in ("ask", "buy"))
KNOWN = tm.features("known", entity=ASK, features=[
    ASK.interval_join(BUY, on="k", preceding=50, lateness=5).agg(n=tm.count(), most=tm.max("x")),
    ASK.interval_join(BUY, on="k", preceding=30, where=lambda a, b: a.x < b.x).agg(mid=tm.median("x")),
    ASK.interval_join(ASK, on="k", since_previous=True).agg(own=tm.count()),
    ASK.last_join(BUY, on="k", tolerance=40).select(last="x_right"),
])  # fmt: skip
POLICY = tm.Disorder(slack=12)
"""Some rows are late: those are in no result, or, on arrival, come within the lateness."""
INPUTS = {"ask": events(3), "buy": events(4)}
WAYS = tuple((answers, kind) for answers in ("exact", "on arrival") for kind in ("file", "directory"))


def go_on(folder: Path, rows: int) -> None:
    """Push so many rows of each stream, from the last checkpoint on."""
    warnings.simplefilter("error")  # no checkpoint is damaged
    answers: Any = "on arrival" if "on arrival" in folder.name else "exact"
    server, offset, part = KNOWN.online(POLICY, answers=answers), 0, 0
    if (folder / "saved").is_file() or list(folder.glob("saved/checkpoint-*")):
        server.load(folder / "saved")
        offset, part = server.positions["ask"]
    schema = KNOWN.query.schema.to_arrow()
    while offset < rows:
        found: list[pa.Table] = []
        for _ in range(BETWEEN):
            some = {name: table.slice(offset, BATCH) for name, table in INPUTS.items()}
            offset += BATCH
            found.append(server.push(**some, position={"ask": [offset, part + 1], "buy": offset}))
        part += 1
        write_ipc(folder / f"{part}.arrow", schema, [b for t in found for b in t.to_batches()])
        server.checkpoint(folder / "saved", keep=KEEP if folder.name.endswith("directory") else None)
    write_ipc(folder / "rest.arrow", schema, server.flush().to_batches())
    say_done(folder, part)


def servers_are_killed(at_least: int, tmp_path: Path, rows: int, ways: tuple[tuple[str, str], ...]) -> None:
    pick, expected = random.Random(seed_of("killed servers")), dict[str, list[dict[str, Any]]]()
    program = partial(go_on, rows=rows)
    for answers, kind in ways:
        once = tmp_path / f"once {answers} {kind}"
        once.mkdir()
        with warnings.catch_warnings():
            program(once)  # kernels are ready in all processes that are forked from this one
        expected[answers] = written(once, KNOWN.query)
    late = KNOWN.online(POLICY)
    late.push(**{name: table.slice(0, rows) for name, table in INPUTS.items()})
    in_time = rows - late.stats().inputs["ask"].late
    assert rows / 2 < in_time < len(expected["on arrival"]) <= rows
    assert len(expected.get("exact", ())) in (0, in_time)
    kills, wrong, runs = 0, [], 0
    while kills < at_least or runs % len(ways):
        answers, kind = ways[runs % len(ways)]
        folder = tmp_path / f"{runs} {answers} {kind}"
        folder.mkdir()
        kills += killed(program, folder, pick)
        runs += 1
        try:
            assert_same(written(folder, KNOWN.query), expected[answers], KNOWN.query.schema)
        except AssertionError as different:
            wrong.append(str(different))
    report("killed servers", kills, len(wrong))
    assert wrong == []


@pytest.mark.interpreted
@pytest.mark.usefixtures("seldom_whole")
def test_a_server_that_is_killed_answers_each_row_once(tmp_path: Path) -> None:
    servers_are_killed(2, tmp_path, 120, WAYS[3:])


@pytest.mark.soak
@pytest.mark.usefixtures("seldom_whole")
def test_many_servers_are_killed(tmp_path: Path) -> None:
    servers_are_killed(int(200 * SOAK), tmp_path, ROWS, WAYS)
