"""Which rows are in which window: the table of docs/design.md, row by row.

`memberships` gives, for one window of a query, each window of each key with its bounds and rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.fuzz.oracle.values import FAR, Unsure, Wrong, nulls_first

MANY = 3000
Spec = dict[str, Any]
Get = Callable[[str], Any]
Member = tuple[int, Get]
Found = tuple[tuple[Any, ...], int, int, list[Member]]
"""Key, window_start, window_end, and the rows with what they are windowed by."""


def group_keys(keys: list[str], specs: list[Spec]) -> list[str]:
    """The keys of the result: what partitions the windows, then what was grouped by."""
    found = list(keys)
    for spec in specs:
        found = [p for p in spec.get("partition") or () if p not in found] + found
    return found


def memberships(
    spec: Spec, rows: list[Get], keys: list[str], out: list[str], time: str, columns: list[str]
) -> Iterator[Found]:
    """All windows of one specification. `keys` were grouped by, `out` are the keys of the result."""
    kind = spec["kind"]
    at: list[int | None] = []
    if kind != "rows":
        for get in rows:
            value = get(spec.get("on") or time)
            if value is None:
                raise Wrong("null in the windowing column")
            if abs(value) > FAR:
                raise Wrong("a time farther than 2**61")
            at.append(value)
    partition = spec.get("partition")
    if kind in ("rows", "per_event", "session"):
        partition = keys if partition is None else partition
    else:
        partition = []
    parts: dict[Any, list[int]] = {}
    for i in _numbered(spec, rows, columns):
        parts.setdefault(_key(rows[i], partition), []).append(i)
    for members in parts.values():
        if kind == "rows":
            numbered = [(n, i) for n, i in enumerate(members)]
            yield from _grid(spec, numbered, rows, out, 0, 0)
        elif kind in ("tumbling", "hopping", "landmark"):
            start = spec.get("start")
            start = 0 if kind == "landmark" and start is None else start
            origin = start if kind == "landmark" else spec.get("origin") or 0
            yield from _grid(spec, [(at[i], i) for i in members], rows, out, origin, start)
        elif kind == "per_event":
            yield from _per_event(spec, [(at[i], i) for i in members], rows, out)
        else:
            yield from _sessions(spec, [(at[i], i) for i in members], rows, out)


def _numbered(spec: Spec, rows: list[Get], columns: list[str]) -> list[int]:
    """Rows in order of arrival, or of `order_by` with ties broken by the other columns."""
    order = spec.get("order_by")
    if order is None:
        return list(range(len(rows)))
    names = [order, *(c for c in columns if c != order)]
    return sorted(range(len(rows)), key=lambda i: [nulls_first(rows[i](n)) for n in names])


def _key(get: Get, names: list[str]) -> tuple[Any, ...]:
    """Null is a key like any other; there is one NaN and one zero."""
    values = []
    for name in names:
        value = get(name)
        if isinstance(value, float):
            value = "nan" if value != value else value + 0.0
        values.append((type(value).__name__, value))
    return tuple(values)


def _emit(
    inside: list[tuple[int, int]],
    rows: list[Get],
    out: list[str],
    start: int,
    end: int,
    also: dict[Any, tuple[Any, ...]] | None = None,
) -> Iterator[Found]:
    """A window's rows by key; keys of `also` are there even without rows."""
    groups: dict[Any, list[Member]] = {}
    shown: dict[Any, tuple[Any, ...]] = {}
    for place, i in inside:
        key = _key(rows[i], out)
        shown.setdefault(key, tuple(rows[i](n) for n in out))
        groups.setdefault(key, []).append((place, rows[i]))
    if also is not None:
        also.update(shown)
        for key in also:
            groups.setdefault(key, [])
        shown = also
    for key, members in groups.items():
        yield shown[key], start, end, members


def _grid(
    spec: Spec,
    points: list[tuple[int, int]],
    rows: list[Get],
    out: list[str],
    origin: int,
    start: int | None,
) -> Iterator[Found]:
    every = spec.get("every") or spec["size"]
    length = None if spec["kind"] == "landmark" else spec.get("range") or spec["size"]
    points = [p for p in points if start is None or p[0] >= start]
    inside: dict[int, list[tuple[int, int]]] = {}
    for a, i in points:
        first = (a - origin) // every
        last = first if length is None else (a - origin + length) // every - 1
        if last - first > MANY:
            raise Unsure("too many windows to look at one by one")
        for w in range(first, last + 1):
            inside.setdefault(w, []).append((a, i))
    if not inside:
        return
    low, high = min(inside), max(inside)
    if high - low > MANY and (length is None or spec.get("fill")):
        raise Unsure("too many windows to look at one by one")
    seen: dict[Any, tuple[Any, ...]] | None = {} if spec.get("fill") else None
    so_far: list[tuple[int, int]] = []
    for w in range(low, high + 1) if length is None or seen is not None else sorted(inside):
        end = origin + (w + 1) * every
        begin = start if length is None else end - length
        begin = begin if start is None else max(begin, start)
        members = inside.get(w, [])
        if length is None:
            so_far = so_far + members
            members = so_far
        assert all(begin <= a < end for a, _ in members)
        yield from _emit(members, rows, out, begin, end, seen)


def _per_event(
    spec: Spec, points: list[tuple[int, int]], rows: list[Get], out: list[str]
) -> Iterator[Found]:
    every = spec.get("every", 1)
    order = sorted(points, key=lambda p: p[0]) if spec.get("by") == "rank" else points
    for w in sorted({a for n, (a, _) in enumerate(order, 1) if n % every == 0}):
        inside = [p for p in points if w - spec["range"] < p[0] <= w]
        yield from _emit(inside, rows, out, w - spec["range"], w)


def _sessions(
    spec: Spec, points: list[tuple[int, int]], rows: list[Get], out: list[str]
) -> Iterator[Found]:
    run: list[tuple[int, int]] = []
    for point in sorted(points, key=lambda p: p[0]):
        if run and point[0] - run[-1][0] >= spec["gap"]:
            yield from _emit(run, rows, out, run[0][0], run[-1][0] + spec["gap"])
            run = []
        run.append(point)
    if run:
        yield from _emit(run, rows, out, run[0][0], run[-1][0] + spec["gap"])
