"""Live joins and snapshots are killed at any moment, and go on from a checkpoint: each row comes once."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.harness import assert_same
from tests.faults.counts import SOAK, report, seed_of
from tests.faults.test_killed_live import KEEP, killed, say_done, written
from tidemill import col
from tidemill.core.batch import to_rows
from tidemill.io.sinks import write_ipc

ROWS, BATCH, BETWEEN = 800, 40, 3
COLUMNS = {"t": "int64", "k": "string", "x": "int64"}
CLICKS, BUYS = (tm.stream(name, time="t", schema=COLUMNS) for name in ("clicks", "buys"))
SEEN = CLICKS.lasting(60).join(BUYS, on="k", where=lambda c, b: c.x % 7 <= b.x % 9, how="left")
QUERY = SEEN.group_by("k").agg(n=tm.count(), most=tm.max("x"), last=tm.last("x_right")).where(col.n > 1)
POLICY = tm.Disorder(slack=20)


def events(seed: int) -> pa.Table:
    pick = random.Random(seed)
    came = sorted(range(ROWS), key=lambda t: t + pick.randint(0, 20))
    return pa.table({"t": came, "k": [f"k{pick.randint(0, 9)}" for _ in came], "x": [t % 97 for t in came]})


INPUTS = {"clicks": events(1), "buys": events(2)}


def go_on(folder: Path) -> None:
    """Read all events from the last checkpoint on."""
    warnings.simplefilter("error")  # no checkpoint is damaged
    directory = folder.name.endswith("directory")
    if (folder / "saved").is_file() or list(folder.glob("saved/checkpoint-*")):
        live = tm.restore(QUERY, folder / "saved", POLICY)
        offset, part = live.positions["clicks"]
    else:
        live, offset, part = QUERY.live(POLICY), 0, 0
    schema = QUERY.schema.to_arrow()
    while offset < ROWS:
        found: list[pa.Table] = []
        for _ in range(BETWEEN):
            some = {name: table.slice(offset, BATCH) for name, table in INPUTS.items()}
            offset += BATCH
            found.append(live.push(**some, position={"clicks": [offset, part + 1], "buys": offset}))
        part += 1
        write_ipc(folder / f"{part}.arrow", schema, [b for t in found for b in t.to_batches()])
        live.checkpoint(folder / "saved", keep=KEEP if directory else None)
    write_ipc(folder / "rest.arrow", schema, live.flush().to_batches())
    say_done(folder, part)


def joins_are_killed(at_least: int, tmp_path: Path) -> None:
    pick = random.Random(seed_of("killed joins"))
    expected = to_rows(QUERY.run(**INPUTS).to_batches(), QUERY.schema)
    assert len(expected) > 100
    for once in ("whole file", "whole directory"):
        (tmp_path / once).mkdir()
        with warnings.catch_warnings():
            go_on(tmp_path / once)  # kernels are ready in all processes that are forked from this one
    kills, wrong, runs = 0, [], 0
    while kills < at_least or runs % 2:
        folder = tmp_path / f"{runs} {'file' if runs % 2 else 'directory'}"
        folder.mkdir()
        kills += killed(go_on, folder, pick)
        runs += 1
        got = written(folder, QUERY)
        try:
            assert_same(got, expected, QUERY.schema)
        except AssertionError as different:
            wrong.append(str(different))
    report("killed joins", kills, len(wrong))
    assert wrong == []


@pytest.mark.interpreted
@pytest.mark.usefixtures("seldom_whole")
def test_a_join_that_is_killed_goes_on_and_gives_each_row_once(tmp_path: Path) -> None:
    joins_are_killed(4, tmp_path)


@pytest.mark.soak
@pytest.mark.usefixtures("seldom_whole")
def test_many_joins_are_killed(tmp_path: Path) -> None:
    joins_are_killed(int(200 * SOAK), tmp_path)
