"""A reader in another process that asks as fast as it can, while the writer goes on.

Slot `i` gets `ROWS` rows of value `i`: the sum of any range below the watermark is known without
looking, so every answer is checked.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tidemill as tm
from benchmarks.answers import Mismatch
from benchmarks.harness import Answers, Case, Measured
from benchmarks.machine import ROOT
from tidemill import col

ROWS, SLOTS = 100, 100
"""Rows in a slot, and slots in a batch; the watermark moves on after every batch."""
READY = "ready"
READER = "from benchmarks.wheels.readers import main; main()"


def cases(quick: bool) -> list[Case]:
    seconds = 2 if quick else 60
    params = {"seconds": seconds, "rows in a batch": ROWS * SLOTS}
    systems = {"tidemill": lambda _: _run(seconds)}
    # Once: it takes as long as it is told to, and starts from nothing.
    return [Case("readers/sum, one reader", params, systems, _none_wrong, repeats=1, fresh=True)]


def expected(first: int, until: int) -> int | None:
    """The sum over slots."""
    return ROWS * (until - first) * (first + until - 1) // 2 if first < until else None


def _none_wrong(answers: Answers) -> None:
    for name, found in answers.items():
        if found["wrong"]:
            raise Mismatch(f"{name}: {found['wrong']:,} wrong answers; first {found['first wrong']}")


def _run(seconds: int) -> Measured:
    shm = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None) as folder:
        wheel = tm.Wheel(
            tm.sum(col.v), schema={"t": "int64", "v": "int64"}, time="t", start=0,
            granularities=[1, 60, 3_600, 86_400], retention="keep",
        )  # fmt: skip
        wheel.share(folder)
        _write(wheel, 0)  # compiles, before the clock runs
        command = [sys.executable, "-c", READER, folder, str(seconds)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as reader:
            assert reader.stdout is not None
            if reader.stdout.readline().strip() != READY:
                raise RuntimeError("the reader did not start")
            batches, took = _write_while(wheel, reader)
            found = json.loads(reader.stdout.read())
    rates = {
        "queries/s": found["asked"] / found["seconds"],
        "rows/s": batches * ROWS * SLOTS / took,
        "wrong answers": found["wrong"],
    }
    return Measured(found, found["seconds"] / found["asked"], rates)


def _write_while(wheel: Any, reader: subprocess.Popen[str]) -> tuple[int, float]:
    """Rows until the reader has had enough: how many batches, in how many seconds."""
    batches, begin = 0, time.perf_counter()
    while reader.poll() is None:
        batches += 1
        _write(wheel, batches)
    return batches, time.perf_counter() - begin


def _write(wheel: Any, number: int) -> None:
    slots = np.repeat(np.arange(number * SLOTS, (number + 1) * SLOTS), ROWS)
    wheel.insert(pa.record_batch({"t": slots, "v": slots}))
    wheel.advance_to((number + 1) * SLOTS)


def read(path: str, seconds: float) -> dict[str, Any]:
    """Ask for any ranges below the watermark, for so long."""
    wheel: Any = tm.open_wheel(path)
    wheel.query(0, 1)  # compiles
    print(READY, flush=True)
    ranges = np.random.default_rng(6).random((100_000, 2)).tolist()
    asked, wrong, first_wrong = 0, 0, None
    begin = time.perf_counter()
    end = begin + seconds
    while (now := time.perf_counter()) < end:
        known = wheel.watermark
        first, until = sorted(int(x * (known + 1)) for x in ranges[asked % len(ranges)])
        found = wheel.query(first, until)
        asked += 1
        if found != expected(first, until):
            wrong += 1
            first_wrong = first_wrong or [first, until, known, found]
    return {"asked": asked, "wrong": wrong, "first wrong": first_wrong, "seconds": now - begin}


def main() -> None:
    """What the other process does."""
    print(json.dumps(read(sys.argv[1], float(sys.argv[2]))), flush=True)
