"""What a machine that makes faults has to say: how much it tried, and how much was not as it must be."""

from __future__ import annotations

import os
import random
import time

SOAK = float(os.environ.get("TIDEMILL_SOAK", "1"))
"""How much longer than usual a soak is to run."""


def seed_of(machine: str) -> int:
    """The seed of a run: `TIDEMILL_SEED`, or a new one. It is printed, so that the run can be repeated."""
    seed = int(os.environ.get("TIDEMILL_SEED") or time.time_ns() % (1 << 31))
    say(f"faults: {machine}: TIDEMILL_SEED={seed}")
    random.seed(seed)
    return seed


def report(machine: str, cases: int, differences: int) -> None:
    """One line for each machine, whether or not pytest shows what tests print."""
    say(f"faults: {machine}: {cases} cases, {differences} differences")


def say(line: str) -> None:
    """Show a line in the summary at the end of the run, and at once where pytest shows what tests print."""
    LINES.append(line)
    print(line, flush=True)


LINES: list[str] = []
"""What the machines of the test that runs have said; see `tests/conftest.py`."""
