"""The fuzzer at length: worker processes, each on seeds of its own, and their counts added up.

A worker ends after some thousand cases and another goes on: compiled kernels are never freed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CASES = 200_000
"""Cases of one soak, times `TIDEMILL_SOAK`."""
BATCH = 8_000
"""Cases of one worker."""


def size(cases: int) -> int:
    """So many cases, times what `TIDEMILL_SOAK` says."""
    return max(1, int(cases * float(os.environ.get("TIDEMILL_SOAK", "1"))))


@dataclass
class Totals:
    """What all workers counted."""

    cases: Counter[str] = field(default_factory=Counter)
    differences: Counter[str] = field(default_factory=Counter)
    allowed: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    values: int = 0
    found: list[str] = field(default_factory=list)

    def add(self, counts: dict[str, Any]) -> None:
        for name in ("cases", "differences", "allowed", "skipped"):
            getattr(self, name).update(counts[name])
        self.values += counts["values"]
        self.found += counts["found"]


def soak(
    seed: int, cases: int, folder: Path, *, workers: int = 2, seconds: float | None = None,
    say: Callable[[str], None] = print,
) -> Totals:  # fmt: skip
    """Workers until so many cases ran in all, or time is up. A worker that dies is a difference."""
    totals, until = Totals(), None if seconds is None else time.monotonic() + seconds
    running: dict[subprocess.Popen[bytes], tuple[int, Path]] = {}
    given, next_seed = 0, seed
    try:
        while True:
            late = until is not None and time.monotonic() > until
            done = sum(totals.cases.values())
            while len(running) < workers and done + given < cases and not late:
                batch = min(BATCH, max(cases - done - given, 1))
                running[_worker(next_seed, batch, folder, until)] = (
                    next_seed,
                    folder / str(next_seed),
                )
                given += batch
                next_seed += 100_000
            if not running:
                return totals
            for worker in [w for w in running if w.poll() is not None]:
                first, path = running.pop(worker)
                given = BATCH * len(running)
                if path.exists():
                    totals.add(json.loads(path.read_text()))
                else:
                    totals.found.append(f"seed {first}: the worker died with {worker.returncode}")
                say(f"fuzz: {sum(totals.cases.values())} cases, {len(totals.found)} differences")
            time.sleep(0.2)
    finally:
        for worker in running:
            worker.kill()


def _worker(seed: int, cases: int, folder: Path, until: float | None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.fuzz", "--seed", str(seed), "--cases", str(cases),
               "--shrink", "90", "--json", str(folder / str(seed))]  # fmt: skip
    if until is not None:
        command += ["--seconds", str(max(1.0, until - time.monotonic()))]
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p),
           "TIDEMILL_CACHE": str(folder / "kernels")}  # fmt: skip
    with (folder / f"{seed}.log").open("wb") as log:
        return subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)
