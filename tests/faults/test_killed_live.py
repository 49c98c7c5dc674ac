"""Live queries are killed at any moment, and go on from their last checkpoint: each row comes once.

Whoever reads an input writes what came out before the checkpoint that says so. What came after the checkpoint
is written again. Checkpoints are files that are replaced, and directories of changes, in turns.
"""

from __future__ import annotations

import os
import random
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pytest

import tidemill as tm
from tests.conformance.harness import assert_same
from tests.faults.counts import SOAK, report, seed_of
from tidemill import col
from tidemill.core.batch import to_rows
from tidemill.io.sinks import write_ipc
from tidemill.local.checkpoint_directory import numbers_in, read_manifest
from tidemill.stream import Stream

ROWS, BATCH, BETWEEN = 1_600, 40, 4
"""Events, events of a push, and pushes between two checkpoints."""
KEEP = 3
STREAM = tm.stream("s", time="t", schema={"t": "int64", "k": "string", "x": "int64"})
QUERY = STREAM.group_by("k").window(tm.hopping(200, every=50)).agg(
    n=tm.count(), total=tm.sum(col.x), last=tm.last(col.k), middle=tm.median(col.x)
)  # fmt: skip
POLICY = tm.Disorder(slack=30)


def events() -> pa.Table:
    pick = random.Random(5)
    came = sorted(range(ROWS), key=lambda t: t + pick.randint(0, 30))
    return pa.table({"t": came, "k": [f"k{pick.randint(0, 30)}" for _ in came], "x": [t % 97 for t in came]})


EVENTS = events()


def go_on(folder: Path) -> None:
    """Read all events from the last checkpoint on. `done` then says how many parts there are."""
    warnings.simplefilter("error")  # no checkpoint is damaged
    keep = KEEP if folder.name.endswith("directory") else None
    if (folder / "saved").is_file() or list(folder.glob("saved/checkpoint-*")):
        live = tm.restore(QUERY, folder / "saved", POLICY)
        offset, part = live.positions["s"]
    else:
        live, offset, part = QUERY.live(POLICY), 0, 0
    found: list[pa.Table] = []
    schema = QUERY.schema.to_arrow()
    while offset < ROWS:
        for _ in range(BETWEEN):
            some = EVENTS.slice(offset, BATCH)
            offset += len(some)
            found.append(live.push(s=some, position=[offset, part + 1]))
        part += 1
        write_ipc(folder / f"{part}.arrow", schema, [b for t in found for b in t.to_batches()])
        live.checkpoint(folder / "saved", keep=keep)
        found = []
    write_ipc(folder / "rest.arrow", schema, live.flush().to_batches())
    say_done(folder, part)


def read_on(folder: Path) -> None:
    """As `go_on`, with `live.read` of a directory in which the events are, a file for each part.

    A file of rows has the number of its first one. Those from the checkpoint on are written again, and may be
    divided in another way.
    """
    saved = folder / "saved"
    live = tm.restore(QUERY, saved, POLICY) if saved.exists() else QUERY.live(POLICY)
    given = live.stats().rows_out
    for path in folder.glob("rows-*.arrow"):
        if int(path.stem[5:]) >= given:
            path.unlink()
    schema = QUERY.schema.to_arrow()
    parts = tm.follow(folder.parent / "events", until=lambda: True)
    for table in live.read(s=parts, checkpoint=saved, every="5ms"):
        write_ipc(folder / f"rows-{given}.arrow", schema, table.to_batches())
        given += table.num_rows
    write_ipc(folder / "rest.arrow", schema, live.flush().to_batches())
    say_done(folder, 0)


def say_done(folder: Path, parts: int) -> None:
    """Write how many parts there are. A kill before the end must not leave an empty file."""
    (folder / "ending").write_text(str(parts))
    (folder / "ending").rename(folder / "done")


def write_events(folder: Path) -> None:
    folder.mkdir()
    for start in range(0, ROWS, BETWEEN * BATCH):
        some = EVENTS.slice(start, BETWEEN * BATCH)
        write_ipc(folder / f"{start:06d}.arrow", some.schema, some.to_batches())


def killed(program: Callable[[Path], None], folder: Path, pick: random.Random) -> int:
    """Start processes and kill them, until one comes to the end; return how many were killed."""
    kills = 0
    while not (folder / "done").exists():
        child = os.fork()
        if child == 0:
            try:
                program(folder)
                os._exit(0)
            finally:
                os._exit(1)
        time.sleep(pick.random() * 0.1 * (1 + kills / 8))  # so that one of them comes to the end
        os.kill(child, signal.SIGKILL)
        kills += os.waitpid(child, 0)[1] == signal.SIGKILL
    return kills


def written(folder: Path, query: Stream) -> list[dict[str, Any]]:
    """Return the rows of all parts that say they are part of the result."""
    names = [f"{n}.arrow" for n in range(1, int((folder / "done").read_text()) + 1)] + ["rest.arrow"]
    names += [path.name for path in folder.glob("rows-*.arrow")]
    tables = [pa.ipc.open_file(folder / name).read_all() for name in names]
    return to_rows([b for t in tables for b in t.to_batches()], query.schema)


def half_way(folder: Path) -> None:
    """Restore a query that has open windows: what goes on from them is ready, too."""
    folder.mkdir()
    live = QUERY.live(POLICY)
    live.push(s=EVENTS.slice(0, ROWS // 2))
    live.checkpoint(folder / "saved")
    live.close()
    again = tm.restore(QUERY, folder / "saved", POLICY)
    again.push(s=EVENTS.slice(ROWS // 2))
    again.flush()


def left_over(folder: Path) -> list[str]:
    """Return what killed processes left that the next checkpoint does not remove."""
    saved = folder / "saved"
    if saved.is_file():
        QUERY.live().checkpoint(saved)
        return [f"{p} was left" for p in folder.iterdir() if p.name.startswith(".saved")]
    with QUERY.live() as live:
        live.checkpoint(saved)
    kept = numbers_in(saved)
    named = {s.file for number in kept for s in read_manifest(saved, number).segments}
    listed = {p.name for p in saved.iterdir()} - {"writer.lock"}
    expected = named | {f"checkpoint-{number:06}.json" for number in kept}
    return [f"{name} was left, or is missing" for name in listed ^ expected] + [
        f"{len(kept)} checkpoints stay" for _ in kept[KEEP:]
    ]


def live_queries_are_killed(program: Callable[[Path], None], at_least: int, tmp_path: Path) -> None:
    write_events(tmp_path / "events")
    pick = random.Random(seed_of("killed live queries"))
    expected = to_rows(QUERY.run(s=EVENTS).to_batches(), QUERY.schema)
    for once in ("whole file", "whole directory"):
        (tmp_path / once).mkdir()
        with warnings.catch_warnings():
            program(tmp_path / once)  # kernels are ready in all processes that are forked from this one
    half_way(tmp_path / "half")
    kills, wrong, runs = 0, [], 0
    while kills < at_least or runs % 2:
        folder = tmp_path / f"{runs} {'file' if runs % 2 else 'directory'}"
        folder.mkdir()
        kills += killed(program, folder, pick)
        runs += 1
        got = written(folder, QUERY)
        try:
            assert_same(got, expected, QUERY.schema)
        except AssertionError as different:
            wrong.append(str(different))
        wrong += left_over(folder)
    report("killed live queries", kills, len(wrong))
    assert wrong == []


@pytest.mark.interpreted
@pytest.mark.usefixtures("seldom_whole")
@pytest.mark.parametrize("program", [go_on, read_on])
def test_a_live_query_that_is_killed_goes_on_and_gives_each_row_once(
    program: Callable[[Path], None], tmp_path: Path
) -> None:
    live_queries_are_killed(program, 6, tmp_path)


@pytest.mark.soak
@pytest.mark.usefixtures("seldom_whole")
@pytest.mark.parametrize("program", [go_on, read_on])
def test_many_live_queries_are_killed(program: Callable[[Path], None], tmp_path: Path) -> None:
    live_queries_are_killed(program, int(500 * SOAK), tmp_path)
