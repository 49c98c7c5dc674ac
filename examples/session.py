"""A Spark session for the examples, whose files go away with it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def session() -> Iterator[Any]:
    from tidemill.demo import start_spark

    with tempfile.TemporaryDirectory(prefix="tidemill-") as scratch:
        spark = start_spark(Path(scratch))
        try:
            yield spark
        finally:
            spark.stop()
