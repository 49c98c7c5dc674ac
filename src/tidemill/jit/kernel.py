"""The decorators of kernels, which Numba compiles and which release the GIL."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numba

from tidemill.jit.disk_cache import GENERATED, keep_on_disk
from tidemill.jit.function_content import NoContentError, named_by_content


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function once for each signature and cache it on disk; it releases the GIL.

    LLVM inlines small functions into the loops that call them.
    """
    compiled: Callable[..., Any] = keep_on_disk(numba.njit(nogil=True, error_model="numpy")(function))
    return compiled


def bare_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `kernel`, for functions that allocate nothing: references to arrays are not counted.

    A kernel counts those of each array that it passes on: an atomic instruction, which takes longer than many
    a function.
    """
    options: dict[str, Any] = {"_nrt": False}  # not in Numba's stubs
    compile = numba.njit(nogil=True, error_model="numpy", **options)
    compiled: Callable[..., Any] = keep_on_disk(compile(function))
    return compiled


def adding_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `kernel`, for a loop that adds floats in any order: the compiler may use SIMD."""
    compile = numba.njit(nogil=True, error_model="numpy", fastmath={"reassoc", "nsz"})
    compiled: Callable[..., Any] = keep_on_disk(compile(function))
    return compiled


def calling_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `kernel`, for a loop that calls users' functions: dividing by zero raises, as in Python."""
    compiled: Callable[..., Any] = keep_on_disk(_as_python(function))
    return compiled


def any_kernel(function: Any) -> Any:
    """Compile a user's function; Numba's errors are not caught. Dividing by zero raises, as in Python.

    It is cached on disk by its content (`function_content`), if that can be told. Equal functions are
    compiled once.
    """
    try:
        copy = named_by_content(function, _of_content)
    except NoContentError:
        return _as_python(function)
    return _of_content(copy)


_known: dict[str, Any] = {}
"""Compiled functions by their content."""


def _of_content(copy: FunctionType) -> Any:
    content = copy.__globals__[GENERATED]
    if content not in _known:
        _known[content] = keep_on_disk(_as_python(copy))
    return _known[content]


def _as_python(function: Any) -> Any:
    return numba.njit(nogil=True, error_model="python")(function)
