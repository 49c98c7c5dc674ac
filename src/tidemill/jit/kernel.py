"""The decorators of kernels, which Numba compiles and which release the GIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

from tidemill.jit.disk_cache import keep_on_disk


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function once for each signature and cache it on disk; it releases the GIL.

    LLVM inlines small functions into the loops that call them.
    """
    compiled: Callable[..., Any] = keep_on_disk(numba.njit(nogil=True, error_model="numpy")(function))
    return compiled


def adding_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `kernel`, for a loop that adds floats in any order: the compiler may use SIMD."""
    compile = numba.njit(nogil=True, error_model="numpy", fastmath={"reassoc", "nsz"})
    compiled: Callable[..., Any] = keep_on_disk(compile(function))
    return compiled


def any_kernel(function: Any) -> Any:
    """Compile a user's function without caching it on disk; Numba's errors are not caught.

    Division by zero raises an exception, as in Python.
    """
    return numba.njit(nogil=True, error_model="python")(function)
