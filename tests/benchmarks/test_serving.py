"""The measurements of serving run, and say what they should."""

from __future__ import annotations

from benchmarks.intervals.serving import SETS, lookups, pushes


def test_latencies_are_measured() -> None:
    for name in SETS:
        assert lookups(name, rows=200, calls=5)["n"] == 5
    found = pushes("on arrival", rate=10_000, size=20, seconds=0.1)
    assert found["n"] == 45 and found["p50"] <= found["p99"]
