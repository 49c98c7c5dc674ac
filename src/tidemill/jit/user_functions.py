"""Find out whether Numba can compile users' Python functions.

That takes the compiler. Queries on few rows do not wait for it: their functions run as plain Python, until
somebody else has found out, or a thread in the background has, because they were asked again and again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tidemill.core.types import DataType
from tidemill.jit import background, modes
from tidemill.jit.kernel import any_kernel

_NUMBA = {
    "int64": "int64", "timestamp": "int64", "duration": "int64", "float64": "float64", "bool": "boolean",
}  # fmt: skip
NOT_YET = "few rows do not wait for a compiler"
_MOST = 512
"""So many answers are kept for each question."""

_found = 0
"""How many answers have been found so far."""


def known() -> int:
    """A number that changes when this thread may get another answer: for caches of what follows from them."""
    return _found if modes.undecided() else -1


def found_out_later(ask: Callable[..., str]) -> Callable[..., str]:
    """A question to the compiler: why something cannot be compiled. On few rows the answer may be `NOT_YET`.

    >>> @found_out_later
    ... def too_long(name):
    ...     return "" if len(name) < 9 else "it is too long"
    >>> too_long("short")
    ''
    """
    answers: dict[tuple[Any, ...], str] = {}

    @functools.wraps(ask)
    def asked(*args: Any) -> str:
        global _found
        answer = answers.get(args)
        if answer is None:
            if modes.undecided():
                return NOT_YET
            answer = ask(*args)
            if len(answers) >= _MOST:
                answers.pop(next(iter(answers)), None)
            answers[args] = answer
            _found += 1
        return answer

    return asked


def postponed(ask: Callable[..., Any], *args: Any) -> None:
    """A query on few rows runs a function as plain Python, because the answer to a question is `NOT_YET`."""
    modes.postpone((ask, args), background.postponed)


def refusal(function: Callable[..., Any], args: tuple[DataType, ...], returns: DataType) -> str:
    """Return why a function runs row by row in Python; empty if Numba can compile it.

    >>> from tidemill.core.types import INT64, STRING
    >>> refusal(abs, (STRING,), STRING)
    'a string is not a machine number'
    """
    for kind in (*args, returns):
        if kind.kind not in _NUMBA:
            return f"a {kind!r} is not a machine number"
    return _refusal(_equal(function), args, returns)


def runs_in_python(function: Callable[..., Any], args: tuple[DataType, ...], returns: DataType) -> None:
    """Say that a query runs a function row by row, so that it is compiled if that goes on."""
    if refusal(function, args, returns) == NOT_YET:
        postponed(_refusal, _equal(function), args, returns)


@functools.lru_cache(maxsize=_MOST)
def _equal(function: Callable[..., Any]) -> Any:
    """A function that stands for all of the same content: queries that are written anew have new ones."""
    try:
        return any_kernel(function)
    except Exception:
        return function


@found_out_later
def _refusal(function: Any, args: tuple[DataType, ...], returns: DataType) -> str:
    import numba

    try:
        compiled, types = function.compiled, tuple(getattr(numba, _NUMBA[a.kind]) for a in args)
        compiled.compile(types)
        result = compiled.overloads[types].signature.return_type
    except Exception as refused:  # Numba raises many kinds; the function then runs in Python
        return str(refused).strip().splitlines()[0]
    if not isinstance(result, (numba.types.Integer, numba.types.Float, numba.types.Boolean)):
        return f"it returns {result}, not one scalar"
    return ""
