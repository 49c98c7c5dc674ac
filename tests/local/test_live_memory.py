"""The state of a live query stays as large as what is open, however many keys and events have passed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local.moving_keys import batches, keys_held, started
from tidemill.local.tuning import LIVE

ROOT = Path(__file__).resolve().parents[2]
EVENTS = 300_000


@pytest.mark.compiled
def test_keys_partials_and_late_rows_that_are_gone_take_no_room() -> None:
    live = started("hopping", "int64")
    most_keys = most_partials = most_late = taken = 0
    for number, batch in enumerate(batches(EVENTS, "int64", 3.0), 1):
        live.push(s=batch)
        if number % 20 == 0:
            late = live.take_late().num_rows
            taken, most_late = taken + late, max(most_late, late)
        if number % 10 == 0:
            most_keys = max(most_keys, keys_held(live))
            most_partials = max(most_partials, live.stats().open_partials)
    stats = live.stats()
    assert stats.events == EVENTS and stats.rows_out > EVENTS
    assert most_keys < 2 * LIVE.few_keys < EVENTS, "most of 900 000 keys are gone"
    assert most_partials < 30_000, "10 000 ticks and the slack, two events a tick"
    assert taken + live.late().num_rows == stats.late > EVENTS // 200 and most_late < 500


@pytest.mark.soak
@pytest.mark.parametrize(
    ("window", "key"),
    [
        ("hopping", "int64"), ("hopping", "string"), ("session", "string"), ("join", "string"),
        ("exact", "string"), ("on arrival", "string"),
    ],
)
def test_resident_memory_after_ten_million_events_is_that_after_the_first(window: str, key: str) -> None:
    """In a process of its own. Tables of keys grow and shrink, and unused memory stays for a while: a quarter
    more is allowed at any time, but it must come back to at most a tenth more."""
    script = Path(__file__).with_name("moving_keys.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, str(script), window, key, "10"], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    resident = [int(line) for line in done.stdout.split()]
    assert len(resident) == 10
    assert max(resident) <= 1.25 * resident[0] and min(resident[5:]) <= 1.1 * resident[0], resident
