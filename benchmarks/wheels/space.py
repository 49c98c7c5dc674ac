"""What a wheel takes, against the same rows elsewhere."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from benchmarks.answers import unchecked
from benchmarks.harness import Case, Measured
from benchmarks.wheels.data import DAY, SECOND, START, fares, wheel


def cases(quick: bool) -> list[Case]:
    return [_case(d) for d in ((1,) if quick else (1, 7))]


def _case(days: int) -> Case:
    seconds = days * DAY

    def held(**options: Any) -> Measured:
        filled = wheel(retention="keep", **options)
        filled.insert(fares(days))
        filled.advance_to(START + seconds * SECOND)
        taken = sum(r["bytes"] for r in filled.stats()["rings"].values())
        with tempfile.TemporaryDirectory() as path:
            filled.save(path)
            file = sum(f.stat().st_size for f in Path(path).glob("*.arrow"))
        return _measured(taken, seconds, {"bytes in a file": file / seconds})

    def in_duckdb(_: Any) -> Measured:
        with tempfile.TemporaryDirectory() as path:
            file = Path(path) / "rides.duckdb"
            with duckdb.connect(str(file)) as connection:
                connection.register("given", fares(days))
                connection.execute("CREATE TABLE rides AS SELECT * FROM given")
                connection.execute("CHECKPOINT")
            return _measured(file.stat().st_size, seconds)

    def sorted_array(_: Any) -> Measured:
        return _measured(np.empty(seconds, dtype="i8,i8").nbytes, seconds)

    systems = {
        "tidemill": lambda _: held(), "compressed": lambda _: held(compress=True),
        "with prefix": lambda _: held(prefix=True),
        "duckdb": in_duckdb, "sorted array": sorted_array,
    }  # fmt: skip
    return Case(f"space/{days} d", {"seconds": seconds}, systems, unchecked, repeats=1)


def _measured(taken: int, slots: int, more: dict[str, float] | None = None) -> Measured:
    """Bytes in the place of seconds: ratios are of bytes."""
    return Measured(None, taken / slots, more or {})
