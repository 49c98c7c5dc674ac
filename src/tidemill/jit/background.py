"""Compile in the background what runs as plain Python again and again.

Nothing is compiled for a few small queries: a script that asks one is over before the compiler would be. Once
plain kernels have taken half a second together, those that ran more than once are compiled by one thread, one
after the other. The process may end at any time; it waits for the kernel that is being compiled.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tidemill.jit.plain import each

PATIENCE = 0.5
"""Seconds that plain kernels take together before the first one is compiled."""

_taken = 0.0
_waiting: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
_queued: set[Any] = set()
_postponed: dict[Any, int] = {}
"""For each question that queries could not wait for, how many queries."""
_MOST = 512
_compiling = threading.Lock()
_ending = threading.Event()
_thread: threading.Thread | None = None


def ran(kernel: Any, args: tuple[Any, ...], seconds: float) -> None:
    """A kernel ran as plain Python for so long."""
    global _taken
    _taken += seconds
    if _taken < PATIENCE or kernel.called < 2:
        return
    like = tuple(map(_like, args))
    signature = id(kernel), tuple(map(_kind, like))
    if signature not in _queued:
        _queued.add(signature)
        _start()
        _waiting.put(partial(kernel.compile_like, like))


def postponed(question: tuple[Callable[..., Any], tuple[Any, ...]], seconds: float) -> None:
    """A query took so long in which a function of a user ran as plain Python.

    The answer to the question, asked here, says whether that can be compiled.
    """
    global _taken
    _taken += seconds
    before = _postponed.get(question, 0)
    if len(_postponed) > _MOST:
        _postponed.clear()
    _postponed[question] = before + 1
    if before and _taken >= PATIENCE and question not in _queued:
        _queued.add(question)
        _start()
        ask, args = question
        _waiting.put(partial(ask, *args))


def _like(value: Any) -> Any:
    """A value of the same type as an argument that keeps no memory alive."""
    if isinstance(value, np.ndarray):
        # An array without elements is contiguous, whatever it was sliced from.
        whole = np.empty((4,) * value.ndim, value.dtype)
        like = whole if value.flags.c_contiguous else whole[(slice(None, None, 2),) * value.ndim]
        like.flags.writeable = value.flags.writeable
        return like
    return each(_like, value) if isinstance(value, tuple) else value


def _kind(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype, value.ndim, value.flags.c_contiguous, value.flags.writeable
    return tuple(map(_kind, value)) if isinstance(value, tuple) else type(value)


def _start() -> None:
    global _thread
    if _thread is None or not _thread.is_alive():
        _thread = threading.Thread(target=_work, name="tidemill-compiler", daemon=True)
        _thread.start()


def _work() -> None:
    while (compile := _waiting.get()) is not None:
        with _compiling, _shorter_turns():
            if _ending.is_set():
                return
            # What cannot be compiled goes on as plain Python; on many rows the caller gets the error.
            with contextlib.suppress(Exception):
                compile()


TURN = 0.0005
"""Seconds after which a thread that runs Python gives way to another one, while something is compiled."""


@contextlib.contextmanager
def _shorter_turns() -> Iterator[None]:
    """Let the compiler have its turn soon.

    The import of Numba reads many files, and waits for its turn after each: beside a thread that never waits,
    it took several times as long with the usual turns.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, TURN))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def wait() -> None:
    """Wait until everything that is queued is compiled."""
    done = threading.Event()
    if _thread is not None:
        _waiting.put(done.set)
        done.wait()


@atexit.register
def _end() -> None:
    _ending.set()
    _waiting.put(None)
    if _thread is not None:
        _thread.join()


def _in_child() -> None:
    global _thread, _compiling
    _thread, _compiling = None, threading.Lock()
    _queued.clear()


if hasattr(os, "register_at_fork"):
    # A child has no such thread, and would wait forever for a lock of Numba that it held.
    os.register_at_fork(
        before=lambda: _compiling.acquire(), after_in_parent=lambda: _compiling.release(),
        after_in_child=_in_child,
    )  # fmt: skip
