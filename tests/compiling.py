"""What the tests compile: how many kernels, and how long that takes, by kernel and by test file.

Most of a test run on an empty cache is compiling. The summary of each run says how much; a run with
`TIDEMILL_COMPILED=FILE` also writes every kernel to a file of JSON lines, with its test and its source.
Seconds are those of the processor, so that a busy machine changes them little. Spark's Python workers and
other child processes are not counted.
"""

from __future__ import annotations

import collections
import inspect
import linecache
import time
from collections.abc import Iterable
from typing import Any, TypedDict

from numba.core import event


class Compiled(TypedDict):
    """One function compiled for one signature. `seconds` leave out the functions it calls."""

    kernel: str
    generated: bool
    seconds: float
    source: str


class _Listener(event.Listener):  # type: ignore[misc]  # Numba has no types
    """Numba compiles under a lock, so one stack is enough."""

    def __init__(self) -> None:
        self.found: list[Compiled] = []
        self._open: list[list[float]] = []

    def on_start(self, event: Any) -> None:
        self._open.append([time.thread_time(), 0.0])

    def on_end(self, event: Any) -> None:
        begin, inner = self._open.pop()
        whole = time.thread_time() - begin
        if self._open:
            self._open[-1][1] += whole
        function = event.data["dispatcher"].py_func
        generated = function.__module__.startswith("tidemill_kernel_")
        self.found.append(
            {
                "kernel": f"{'generated' if generated else function.__module__}.{function.__name__}",
                "generated": generated,
                "seconds": whole - inner,
                "source": "".join(linecache.getlines(inspect.getfile(function))) if generated else "",
            }
        )


_listener = _Listener()


def listen() -> None:
    """Record what this process compiles from now on."""
    event.register("numba:compile", _listener)


def count(kernel: str) -> int:
    """How often this test has compiled a kernel so far."""
    return sum(one["kernel"] == kernel for one in _listener.found)


def taken() -> list[Compiled]:
    """What was compiled since the last call."""
    found, _listener.found = _listener.found, []
    return found


def summary(found: Iterable[tuple[str, Compiled]], most: int = 8) -> list[str]:
    """The lines to print, for pairs of a test's id and a kernel."""
    pairs = list(found)
    by_kernel: collections.Counter[str] = collections.Counter()
    by_file: collections.Counter[str] = collections.Counter()
    for test, one in pairs:
        by_kernel[one["kernel"]] += one["seconds"]  # type: ignore[assignment]  # Counters add floats, too
        by_file[test.partition("::")[0]] += one["seconds"]  # type: ignore[assignment]
    made = [one for _, one in pairs if one["generated"]]
    lines = [
        f"compiled: {len(pairs)} functions, {sum(by_file.values()):.0f} s; "
        f"of them generated {len(made)}, {sum(one['seconds'] for one in made):.0f} s"
    ]
    for title, counted in (("by kernel", by_kernel), ("by file", by_file)):
        shown = ", ".join(f"{name} {seconds:.1f}" for name, seconds in counted.most_common(most))
        lines.append(f"  {title}: {shown}")
    return lines
