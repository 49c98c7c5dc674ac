"""Whether kernels are compiled or run as plain Python.

By default kernels are compiled. Around work on few rows (`on_few_rows`) a kernel that is not in memory as
machine code runs as plain Python instead, which gives the same answer sooner. The environment variable
`TIDEMILL_KERNELS` decides for all of them: `compiled`, or `plain`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tidemill.core.errors import UserError

Item = TypeVar("Item")
COMPILED, PLAIN, AUTO = "compiled", "plain", "auto"
SECONDS = 1.0
"""For so long plain kernels may run in one query; the next ones are compiled."""
ELEMENTS = 1 << 21
"""A kernel that is given arrays with more elements is compiled."""


def _of_environment() -> str:
    given = os.environ.get("TIDEMILL_KERNELS") or AUTO
    if given not in (COMPILED, PLAIN, AUTO):
        raise UserError(
            "TIDEMILL_KERNELS", expected="compiled, plain or auto", got=given,
            hint="unset it, so that the number of rows decides",
        )  # fmt: skip
    return given


mode = _of_environment()
"""What holds in this process: `auto` unless the environment, or `forced`, says otherwise."""


class _OfThread(threading.local):
    few = False
    seconds = SECONDS
    postponed: dict[Any, Callable[[Any, float], None]] | None = None


_here = _OfThread()


@contextmanager
def forced(to: str) -> Iterator[None]:
    """All kernels of this process are compiled, or all run as plain Python, whichever thread calls them."""
    global mode
    before, mode = mode, to
    try:
        yield
    finally:
        mode = before


def plain_here() -> bool:
    """Return whether a kernel that is not compiled runs as plain Python if this thread calls it now."""
    return mode == PLAIN or (mode == AUTO and _here.few and _here.seconds > 0)


def undecided() -> bool:
    """Return whether this thread works on few rows, for which nobody asks if a function can be compiled."""
    return mode == AUTO and _here.few


def spend(seconds: float) -> None:
    """Count what a plain kernel took."""
    _here.seconds -= seconds


def postpone(what: Any, tell: Callable[[Any, float], None]) -> None:
    """Call a function when the query that this thread works on is over, with the seconds that it took.

    Those in plain kernels, which are counted where they are spent, are left out.
    """
    if _here.postponed is not None:
        _here.postponed[what] = tell


def on_few_rows(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the same items; while they are made, kernels may run as plain Python."""
    left, taken = SECONDS, 0.0
    postponed: dict[Any, Callable[[Any, float], None]] = {}
    iterator = iter(items)
    try:
        while True:
            before = _here.few, _here.seconds, _here.postponed
            _here.few, _here.seconds, _here.postponed = True, left, postponed
            begin = now()
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                left = _here.seconds
                taken += now() - begin
                _here.few, _here.seconds, _here.postponed = before
            yield item
    finally:
        if isinstance(iterator, Generator):
            iterator.close()
        for what, tell in postponed.items():
            tell(what, max(0.0, taken - (SECONDS - left)) / len(postponed))


def now() -> float:
    return time.perf_counter()
