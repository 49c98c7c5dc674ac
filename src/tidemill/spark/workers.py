"""Python workers of Spark: processes that run one task after the other."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T", bound=Callable[..., Any])


def settled(task: T) -> T:
    """A task that has the collector forget what was imported.

    After each task, Spark's worker collects garbage, and goes through all of Numba for it: 50 ms each time.
    """

    @functools.wraps(task)
    def run(batches: Any) -> Any:
        if not gc.get_freeze_count():
            gc.freeze()
        yield from task(batches)

    return run  # type: ignore[return-value]
