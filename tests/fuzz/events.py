"""Random rows: ties, nulls, NaN, both zeros, infinities, extremes, text of all kinds, disorder."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.fuzz.expressions import EDGES, NOW, PLAIN

Row = dict[str, Any]

SECOND = 1_000_000


def random_events(pick: Random, query: dict[str, Any]) -> list[Row]:
    """Rows for a query's schema, in order of arrival.

    `query["nullable"]` says which columns have nulls: whether there are any is compiled.
    """
    schema = query["schema"]
    size = pick.choice((0, 1, 2, 3, 5, 8, 12, 20, 20, 30, 30, 45))
    if pick.random() < 0.01:
        size = 400
    edges = pick.choice((0.0, 0.0, 0.0, 0.1, 0.4))
    span = pick.choice((3, 10, 20, 30)) if size < 100 else 200
    keys = pick.choice((1, 2, 3, 6))
    times = _times(pick, size, span, query)
    nullable = query["nullable"]
    missing = pick.choice((0.05, 0.2, 0.6))
    made = []
    for n, t in enumerate(times):
        row: Row = {}
        for name, kind in schema.items():
            role = query["roles"].get(name, name)
            if role == "t":
                row[name] = t
            elif role == "n":
                row[name] = n
            elif role == "u":
                row[name] = pick.randint(-9, 9)
            elif role == "k":
                row[name] = int(keys * pick.random() ** 2)
            elif role == "v" and pick.random() >= edges:
                row[name] = pick.randint(-5, 9)
            else:
                row[name] = _value(pick, kind, edges)
            if name in nullable and (n == 0 or pick.random() < missing):
                row[name] = None
        made.append(row)
    if made and nullable:  # the first row has the nulls that the kernel is compiled for; move it
        at = pick.randrange(len(made))
        for name in schema:
            if query["roles"].get(name, name) not in ("t", "n"):
                made[0][name], made[at][name] = made[at][name], made[0][name]
    if query.get("far") and made and pick.random() < 0.2:
        pick.choice(made)["t"] = pick.choice(
            (1 << 61, -(1 << 61), (1 << 61) + 1, -(1 << 61) - 1, (1 << 63) - 1, -(1 << 63))
        )
        if query.get("ordered"):
            times = sorted(r["t"] for r in made)
            for row, t in zip(made, times):
                row["t"] = t
    return made


def _times(pick: Random, size: int, span: int, query: dict[str, Any]) -> list[int]:
    clock = query["schema"]["t"] == "ts"
    unit, base = (SECOND, NOW) if clock else (1, pick.choice((0, 0, 0, 1000)))
    style = pick.choice(("sorted", "jitter", "any", "any"))
    if query.get("ordered"):
        style = "sorted"
    ticks = [pick.randint(-span, span) for _ in range(size)]
    if pick.random() < 0.15:  # a hole in time
        ticks = [t + 40 * span if t > 0 else t for t in ticks]
    if style != "any":
        ticks.sort()
    if style == "jitter":
        ticks.sort(key=lambda t: t + pick.randint(0, 4))
    fine = (0, 0, 0, 1, 999_999) if clock else (0,)
    times = [base + t * unit + pick.choice(fine) for t in ticks]
    return sorted(times) if style == "sorted" else times


def _value(pick: Random, kind: str, edges: float) -> Any:
    if EDGES[kind] and pick.random() < edges:
        return pick.choice(EDGES[kind])
    return pick.choice(PLAIN[kind])
