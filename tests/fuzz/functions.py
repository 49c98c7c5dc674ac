"""Functions of a user: `tm.udf` and aggregates of one's own. Plain Python, known to both sides."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any


def clip(x: int) -> int:
    return min(x, 9) if x > -9 else -9


def halves(x: float) -> float:
    return x * 0.5 + 1.0 if x > 0 else x - 2.0


def shout(s: str) -> str:
    return s[::-1] + "!"


def digits(s: str) -> int:
    return sum(c.isdigit() for c in s)


def longer(a: str, b: str) -> bool:
    return len(a) > len(b)


def whole(x: float) -> float:
    """Declared as an int, though NaN and infinities are none."""
    return math.floor(x) if abs(x) < 1e15 else math.nan


UDFS: dict[str, tuple[Callable[..., Any], str]] = {
    "clip": (clip, "int"), "halves": (halves, "float"), "shout": (shout, "str"),
    "digits": (digits, "int"), "longer": (longer, "bool"), "whole": (whole, "int"),
}  # fmt: skip
"""Name -> function and kind of its result."""

AGGREGATES: dict[str, dict[str, Any]] = {
    "rms": {  # arithmetic only: recorded
        "identity": lambda: (0.0, 0),
        "lift": lambda x: (x * x, 1),
        "combine": lambda a, b: (a[0] + b[0], a[1] + b[1]),
        "lower": lambda s: (s[0] / s[1]).sqrt(),
    },
    "mean_log": {  # math.log cannot be recorded, but compiled
        "identity": lambda: (0.0, 0),
        "lift": lambda x: (math.log(1.0 + abs(x)), 1),
        "combine": lambda a, b: (a[0] + b[0], a[1] + b[1]),
        "lower": lambda s: s[0] / s[1],
        "returns": "float64",
    },
    "thirds": {  # fractions cannot be compiled: row by row
        "identity": lambda: 0,
        "lift": lambda v: Fraction(v, 3).denominator,
        "combine": lambda a, b: a + b,
        "lower": lambda s: s * 2,
    },
}
"""Arguments of `tm.aggregate`, by name. What they mean is in `oracle.aggregates`."""
