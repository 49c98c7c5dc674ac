"""The same query on one thread and on two."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from benchmarks.harness import HOME

ONE = "one thread"
"""The name of Tidemill on one thread, beside Tidemill on two."""


def gain(seconds: Mapping[str, float], **others: tuple[str, str]) -> dict[str, Any]:
    """How many times as long one thread took as two, of Tidemill and of other pairs of systems."""
    pairs = {HOME: (ONE, HOME), **{name.replace("_", " "): pair for name, pair in others.items()}}
    return {"two threads over one": {name: seconds[one] / seconds[two] for name, (one, two) in pairs.items()}}


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Run Tidemill on so many threads."""
    before = os.environ.get("TIDEMILL_THREADS")
    os.environ["TIDEMILL_THREADS"] = str(count)
    try:
        yield
    finally:
        if before is None:
            del os.environ["TIDEMILL_THREADS"]
        else:
            os.environ["TIDEMILL_THREADS"] = before
