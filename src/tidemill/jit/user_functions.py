"""Find out whether Numba can compile a user's Python function for given types."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tidemill.core.types import DataType
from tidemill.jit import modes
from tidemill.jit.kernel import any_kernel

_NUMBA = {
    "int64": "int64", "timestamp": "int64", "duration": "int64", "float64": "float64", "bool": "boolean",
}  # fmt: skip
NOT_YET = "few rows do not wait for a compiler"


def refusal(function: Callable[..., Any], args: tuple[DataType, ...], returns: DataType) -> str:
    """Return why a function runs row by row in Python; empty if Numba can compile it.

    >>> from tidemill.core.types import INT64, STRING
    >>> refusal(abs, (STRING,), STRING)
    'a string is not a machine number'
    """
    for kind in (*args, returns):
        if kind.kind not in _NUMBA:
            return f"a {kind!r} is not a machine number"
    return NOT_YET if modes.undecided() else _refusal(function, args, returns)


@functools.lru_cache(maxsize=512)
def _refusal(function: Callable[..., Any], args: tuple[DataType, ...], returns: DataType) -> str:
    import numba

    try:
        compiled, types = any_kernel(function).compiled, tuple(getattr(numba, _NUMBA[a.kind]) for a in args)
        compiled.compile(types)
        result = compiled.overloads[types].signature.return_type
    except Exception as refused:  # Numba raises many kinds; the function then runs in Python
        return str(refused).strip().splitlines()[0]
    if not isinstance(result, (numba.types.Integer, numba.types.Float, numba.types.Boolean)):
        return f"it returns {result}, not one scalar"
    return ""
