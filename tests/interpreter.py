"""Kernels run as plain Python in most tests, so that many small cases need no compiling.

A kernel takes Numba half a second and more to compile, and a test of sixty rows a few milliseconds in plain
Python (`tidemill.jit.plain`), which is also how users' queries on few rows run. What depends on the compiler
alone is not seen so: each family of kernels is also compiled in `make test`, and in `make soak` all are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tidemill.jit import modes

COMPILED = os.environ.get("TIDEMILL_KERNELS") == "compiled"
"""Whether all kernels are compiled."""


@contextmanager
def interpreted(*, on: bool = True) -> Iterator[None]:
    """Kernels run as plain Python in this process, whichever thread calls them; or all are compiled."""
    with modes.forced(modes.PLAIN if on and not COMPILED else modes.COMPILED):
        yield


@contextmanager
def as_for_users() -> Iterator[None]:
    """Kernels run as plain Python on few rows only, as they do for users."""
    with modes.forced(modes.AUTO):
        yield


def in_child() -> None:
    """Kernels run as plain Python in all of this process, which a test started."""
    modes.mode = modes.COMPILED if COMPILED else modes.PLAIN


def install() -> None:
    """Outside `interpreted`, kernels of this process are compiled, also for few rows."""
    modes.mode = modes.COMPILED
