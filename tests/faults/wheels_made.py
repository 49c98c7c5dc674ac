"""A saved wheel of every kind, small, and what is asked of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tidemill as tm
from tests.conformance.wheels import AGGREGATES, KEYS, RINGS, SCHEMA
from tidemill import col
from tidemill.wheels.files.buckets import BUCKETS, bucket_path
from tidemill.wheels.files.format import write_save
from tidemill.wheels.files.saving import described, save
from tidemill.wheels.open_wheel import open_wheel
from tidemill.wheels.wheel import Wheel

OBJECTS = {
    "a": tm.distinct_count(col.s, method="hll"), "b": tm.quantile(col.x, 0.5, method="kll"),
    "c": tm.max(col.s), "d": tm.collect(col.v),
}  # fmt: skip


def _rows(start: int, count: int) -> list[dict[str, Any]]:
    texts = ["a", "bb", "", "ünï", None]
    return [
        {"t": start + i // 3, "k": i % 4, "s": texts[i % 5], "v": i % 11 - 5, "x": i / 7}
        for i in range(count)
    ]  # fmt: skip


def _wheel(keys: str, rings: str = "kept", aggregates: Any = None, **options: Any) -> Wheel:
    given = AGGREGATES["sum"] if aggregates is None else aggregates
    return Wheel(
        given, schema=SCHEMA, time="t", keys=KEYS[keys], start=0, granularities=RINGS[rings],
        write_ahead=8, **options,
    )  # fmt: skip


def _saved_twice(wheel: Wheel, path: Path) -> None:
    """Two saves; rows that are open, early and late."""
    wheel.insert(_rows(0, 60))
    wheel.advance_to(15)
    wheel.save(path)
    wheel.insert(_rows(15, 90))
    wheel.advance_to(40)
    wheel.insert([*_rows(3, 2), *_rows(42, 4), *_rows(200, 3)])
    wheel.save(path)


def _store(path: Path) -> None:
    """A store in buckets, as Spark builds it."""
    until, saves = 40, {}
    for bucket in (0, 2):
        wheel = _wheel("one", compress=4)
        wheel.insert([r for r in _rows(0, 90) if r["k"] % 2 == bucket // 2])
        wheel.advance_to(until - bucket)
        save(wheel._state, bucket_path(path, bucket))
        saves[str(bucket)] = save(wheel._state, bucket_path(path, bucket))
    facts = described(_wheel("one")._state)
    facts |= {BUCKETS: {"count": 3, "saves": saves, "until": until}, "compress": 4, "rows": 90}
    write_save(path, {}, facts)


MAKERS: dict[str, Callable[[Path], None]] = {
    "plain": lambda path: _saved_twice(_wheel("no keys"), path),
    "keyed": lambda path: _saved_twice(_wheel("one", "some kept"), path),
    "text keys": lambda path: _saved_twice(_wheel("two"), path),
    "prefix": lambda path: _saved_twice(_wheel("one", prefix=True), path),
    "compressed": lambda path: _saved_twice(_wheel("one", compress=4), path),
    "objects": lambda path: _saved_twice(_wheel("one", aggregates=OBJECTS), path),
    "buckets": _store,
}


KINDS = list(MAKERS)
SOME = ["keyed", "compressed", "objects", "buckets"]
"""Kinds of which each has code of its own: those that `make test` damages. A soak damages all."""
def wheel_of(kind: str) -> Wheel:
    """An empty wheel of a kind, whose sum is of ones."""
    return {"plain": _wheel("no keys"), "compressed": _wheel("one", compress=4)}[kind]


def answers(path: Path, *, verify: bool, go_on: bool) -> list[Any]:
    """All that a wheel in a directory says; what it says after it went on is not in it."""
    wheel: Any = open_wheel(path, verify=verify)
    found: list[Any] = [wheel.watermark, str(wheel), wheel.stats()["rows"]]
    keys: list[Any] = [{}]
    if names := wheel._view.plan.group_keys:
        keys = [{"key": k if len(names) == 1 else (k, s)} for k in (0, 1, 9) for s in ("a", "ünï")]
        table = wheel.query(0, 40)
        found.append(sorted(map(repr, table.to_pylist())))
    for start, end in ((0, 40), (3, 17), (20, 40), (0, 20), (39, 41), (-5, 100)):
        for key in keys:
            found.append(_asked(wheel, start, end, key))
    if isinstance(wheel, Wheel):
        found.append(wheel.late().to_pylist())
    if go_on:
        going = wheel if isinstance(wheel, Wheel) else wheel.wheel()
        now = going.watermark
        going.insert(_rows(now, 30))
        going.advance_to(now + 30)
        going.save(path)
        again: Any = open_wheel(path)
        for key in keys:
            _asked(again, now - 20, now + 20, key)
    return found


def _asked(wheel: Any, start: int, end: int, key: dict[str, Any]) -> Any:
    try:
        return repr(wheel.query(start, end, **key))
    except tm.UserError as refused:  # the rings need not hold it
        return f"refused: {refused}"
