"""What a run opens once and closes at its end: a scratch directory, a Spark session."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT
from tidemill.demo import start_spark

_open = ExitStack()


def close() -> None:
    """Stop Spark, delete all scratch files."""
    _open.close()
    scratch.cache_clear()
    spark.cache_clear()


def at_end(close: Callable[[], object]) -> None:
    """Call this when the run ends, before what was opened earlier is closed."""
    _open.callback(close)


@functools.cache
def scratch() -> Path:
    """A directory for data; it goes away with the run."""
    folder = tempfile.TemporaryDirectory(prefix="tidemill-bench-", ignore_cleanup_errors=True)
    return Path(_open.enter_context(folder))


@functools.cache
def spark() -> Any:
    """A Spark session on two cores, the same for everything compared on Spark."""
    # Spark's Python workers must find the package, and the benchmarks.
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
    folder = scratch() / "spark"
    folder.mkdir()
    session = start_spark(
        folder, spark_driver_memory="6g", spark_sql_window_segmentTree_enabled="true"
    )
    _open.callback(session.stop)
    return session
