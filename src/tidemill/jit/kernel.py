"""How a loop is declared: compiled by Numba, without the GIL, its machine code cached on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

from tidemill.jit.disk_cache import keep_on_disk


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function once for each signature, cached on disk; it releases the GIL.

    LLVM folds small ones into the loops that call them.
    """
    compiled: Callable[..., Any] = keep_on_disk(numba.njit(nogil=True, error_model="numpy")(function))
    return compiled


def any_kernel(function: Any) -> Any:
    """Compile a user's function, or raise what Numba raised; it is not cached on disk.

    Dividing by zero raises, as it does in Python.
    """
    return numba.njit(nogil=True, error_model="python")(function)
