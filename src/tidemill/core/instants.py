"""Convert one or many instants of Python, NumPy, pandas, Arrow, text or ints to ticks."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.time import FARTHEST, Domain, instant, instant_domain

Ints = npt.NDArray[np.int64]
RANGE = "instants within 2**61 ticks of the epoch"


def is_instant(value: Any) -> bool:
    """Return whether a value is one instant, not many."""
    return isinstance(value, (int, str, datetime, np.integer, np.datetime64))


def ticks_of(value: Any, domain: Domain, step: str) -> int:
    """Convert an instant of a time domain to ticks; raise an error if it is too far from zero for windows."""
    ticks = any_ticks(value, domain, step)
    if not -FARTHEST <= ticks <= FARTHEST:
        raise UserError(step, expected=RANGE, got=repr(value))
    return ticks


def any_ticks(value: Any, domain: Domain, step: str) -> int:
    """Convert an instant to ticks, without a limit on its distance from zero."""
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.datetime64):
        return int(many_ticks(np.array([value]), domain, step)[0])
    # NaT of pandas is a datetime, and instants of pandas may have nanoseconds.
    if isinstance(value, datetime) and (value != value or getattr(value, "nanosecond", 0) != 0):
        raise UserError(step, expected="an instant in whole microseconds", got=repr(value))
    own = instant_domain(value)
    if own is not None and own is not domain:
        raise UserError(step, expected=f"an instant of {domain.value}", got=repr(value))
    return instant(value, step=step)


def many_ticks(given: Any, domain: Domain, step: str) -> Ints:
    """Convert a list or a one-dimensional array of instants to ticks."""
    if isinstance(given, (pa.Array, pa.ChunkedArray)):
        given = given.to_numpy() if _is_plain(given) else given.to_pylist()
    if not isinstance(given, (list, tuple)) and not hasattr(given, "__array__"):
        wanted = "as many ends as starts" if is_instant(given) else "an instant, or a list of them"
        raise UserError(step, expected=wanted, got=f"{given!r:.60} ({type(given).__name__})")
    array = np.asarray(given)
    if array.ndim != 1:
        raise UserError(step, expected="instants in one dimension", got=f"{array.ndim}")
    if array.dtype.kind == "M":
        array = _from_datetimes(array, domain, step)
    if array.dtype.kind not in "iu":
        return np.array([ticks_of(x, domain, step) for x in given], dtype=np.int64)
    far = np.flatnonzero((array > FARTHEST) | (array < -FARTHEST))
    if len(far):
        raise UserError(step, expected=RANGE, got=f"{array[far[0]]} at place {far[0]}")
    return array.astype(np.int64, copy=False)


def _is_plain(array: Any) -> bool:
    """Return whether NumPy can represent the array: timestamps or ints without nulls."""
    kind = array.type
    return not array.null_count and bool(pa.types.is_timestamp(kind) or pa.types.is_integer(kind))


def _from_datetimes(array: npt.NDArray[Any], domain: Domain, step: str) -> Ints:
    if domain is not Domain.CLOCK:
        raise UserError(step, expected=f"instants of {domain.value}", got=str(array.dtype))
    exact = array.astype("datetime64[us]")
    bad = np.flatnonzero(exact.astype(array.dtype) != array)  # null, finer than a microsecond, or too far
    if len(bad):
        raise UserError(
            step, expected="instants in whole microseconds", got=f"{array[bad[0]]} at place {bad[0]}"
        )
    return exact.astype(np.int64)
