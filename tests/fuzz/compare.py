"""Answers compared as multisets of rows.

Ints, text, bools, lists, bounds and floats that are copied or chosen must be equal (NaN equals NaN, zero
has one sign). Floats that are added up have the tolerance that the oracle gives with them.
"""

from __future__ import annotations

from typing import Any

from tests.fuzz.oracle.values import Anything, Approx, Between

Row = dict[str, Any]


def same(got: Any, expected: Any) -> bool:
    if isinstance(expected, Anything):
        return got is None or isinstance(got, float)
    if isinstance(expected, Approx):
        if not isinstance(got, float):
            return False
        return got == expected.value or abs(got - expected.value) <= expected.tolerance + 1e-300
    if isinstance(expected, Between):
        return type(got) is type(expected.low) and bool(expected.low <= got <= expected.high)
    if isinstance(expected, dict):
        return (
            isinstance(got, dict)
            and got.keys() == expected.keys()
            and all(same(got[n], expected[n]) for n in expected)
        )
    if isinstance(expected, list):
        return isinstance(got, list) and len(got) == len(expected) and all(map(same, got, expected))
    if isinstance(expected, float) and isinstance(got, float):
        return got == expected or (got != got and expected != expected)
    return type(got) is type(expected) and bool(got == expected)


def difference(got: list[Row], expected: list[Row]) -> str | None:
    """What is on one side only; None where there is nothing."""
    if len(got) == len(expected) and all(map(same, got, expected)):
        return None
    fixed = _fixed(expected)
    buckets: dict[Any, list[Row]] = {}
    for row in got:
        buckets.setdefault(_hashable([row.get(n) for n in fixed]), []).append(row)
    missing = []
    for row in expected:
        bucket = buckets.get(_hashable([row[n] for n in fixed]), [])
        at = next((i for i, other in enumerate(bucket) if same(other, row)), None)
        if at is None:
            missing.append(row)
        else:
            del bucket[at]
    extra = [row for bucket in buckets.values() for row in bucket]
    if not missing and not extra:
        return None
    lines = [f"{len(got)} rows came, {len(expected)} were expected"]
    lines += [f"  expected {row}" for row in missing[:3]]
    lines += [f"  came     {row}" for row in extra[:3]]
    return "\n".join(lines)


def _fixed(rows: list[Row]) -> list[str]:
    """Columns without tolerance, to find partners by."""
    if not rows:
        return []
    loose = {n for row in rows for n, v in row.items() if _loose(v)}
    return [n for n in rows[0] if n not in loose]


def _loose(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_loose, value))
    if isinstance(value, dict):
        return any(map(_loose, value.values()))
    return isinstance(value, (Approx, Between, Anything))


def _hashable(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if value != value else value + 0.0
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        return tuple((n, _hashable(v)) for n, v in value.items())
    return value
