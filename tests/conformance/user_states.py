"""Aggregates of users that keep lists, maps and sets, written as users would."""

from __future__ import annotations

import heapq
from typing import Any

import tidemill as tm

Counts = dict[Any, int]
Runs = list[list[int]]


def seen(counts: Counts, x: Any) -> Counts:
    counts[x] = counts.get(x, 0) + 1
    return counts


def unseen(counts: Counts, x: Any) -> Counts:
    counts[x] -= 1
    if counts[x] == 0:
        del counts[x]
    return counts


def both(a: Counts, b: Counts) -> Counts:
    for x, n in b.items():
        a[x] = a.get(x, 0) + n
    return a


def less(a: Counts, b: Counts) -> Counts:
    return {x: n - b.get(x, 0) for x, n in a.items() if n > b.get(x, 0)}


def most_frequent(counts: Counts) -> Any:
    return max(counts, key=lambda x: (counts[x], x))


def mode(kind: str = "int64", **more: Any) -> Any:
    return tm.aggregate(
        "mode", identity=dict, accumulate=seen, combine=both, lower=most_frequent, returns=kind, **more
    )


distinct_pairs = tm.aggregate(
    "distinct_pairs", identity=set, lift=lambda a, b: {(a, b)}, combine=lambda a, b: a | b, lower=len, empty=0
)


def appended(values: list[Any], x: Any) -> list[Any]:
    values.append(x)
    return values


middle = tm.aggregate(
    "middle", identity=list, accumulate=appended, freeze=lambda values: tuple(sorted(values)),
    combine=lambda a, b: tuple(heapq.merge(a, b)), lower=lambda s: s[len(s) // 2], returns="int64",
)  # fmt: skip


def run_on(runs: Runs, v: int) -> Runs:
    if runs and runs[-1][0] == v:
        runs[-1][1] += 1
    else:
        runs.append([v, 1])
    return runs


def run_off(runs: Runs, v: int) -> Runs:
    assert runs[0][0] == v, "the oldest row leaves first"
    runs[0][1] -= 1
    if runs[0][1] == 0:
        runs.pop(0)
    return runs


def joined(a: Runs, b: Runs) -> Runs:
    if a and b and a[-1][0] == b[0][0]:
        a[-1][1] += b.pop(0)[1]
    a.extend(b)
    return a


def longest_run(**more: Any) -> Any:
    """The most equal values one after the other."""
    return tm.aggregate(
        "longest_run", identity=list, accumulate=run_on, combine=joined, commutative=False,
        lower=lambda runs: max((n for _, n in runs), default=0), **more,
    )  # fmt: skip


last_three = tm.aggregate(
    "last_three", identity=list, accumulate=lambda s, x: [*s, x][-3:], combine=lambda a, b: [*a, *b][-3:],
    lower=lambda s: s, commutative=False, returns="list<string>", empty=(),
)  # fmt: skip
