"""`tm.check_aggregate` accepts functions that agree, and says which of others do not."""

from __future__ import annotations

import math
from typing import Any

import pytest

import tidemill as tm
from tests.conformance.user_states import (
    appended,
    both,
    distinct_pairs,
    last_three,
    less,
    longest_run,
    middle,
    mode,
    run_off,
    seen,
    unseen,
)  # fmt: skip

INTS = [3, 1, 3, 3, -4, 1, 10**12]


def total(**functions: Any) -> Any:
    base: dict[str, Any] = {
        "identity": lambda: 0, "lift": lambda v: v, "combine": lambda a, b: a + b, "lower": lambda s: s,
    }
    return tm.aggregate("total", **(base | functions))


def mean(**functions: Any) -> Any:
    base: dict[str, Any] = {
        "identity": lambda: (0.0, 0), "lift": lambda x: (x, 1), "lower": lambda s: s[0] / s[1],
        "combine": lambda a, b: (a[0] + b[0], a[1] + b[1]),
        "inverse": lambda a, b: (a[0] - b[0], a[1] - b[1]),
    }  # fmt: skip
    return tm.aggregate("mean", **(base | functions))


@pytest.mark.parametrize(
    ("own", "samples"),
    [
        (mode(subtract=unseen, inverse=less), INTS), (mode("string"), ["a", "", "é", "a"]),
        (distinct_pairs, [(1, "a"), (1, "b"), (1, "a")]), (middle, INTS), (last_three, list("abcdd")),
        (longest_run(subtract=run_off), INTS), (total(inverse=lambda a, b: a - b), INTS),
        (total(subtract=lambda s, v: s - v, accumulate=lambda s, v: s + v), INTS),
        (mean(subtract=lambda s, x: (s[0] - x, s[1] - 1)), [0.1, 0.2, 0.3, 7, 0.3]),
        (total(identity=lambda: -math.inf, combine=lambda a, b: a if a > b else b), [0.5, 2.0, 1.5]),
    ],
)  # fmt: skip
def test_functions_that_agree(own: Any, samples: list[Any]) -> None:
    tm.check_aggregate(own, samples)


def forgets_zeros(counts: dict[Any, int], x: Any) -> dict[Any, int]:
    counts[x] -= 1
    return counts


def counted(**more: Any) -> Any:
    return tm.aggregate("kinds", identity=dict, accumulate=seen, combine=both, lower=len, **more)


def sums(**more: Any) -> Any:
    return tm.aggregate(
        "sums", identity=lambda: [0.0], accumulate=lambda s, x: [s[0] + x], lower=lambda s: s[0],
        combine=lambda a, b: [a[0] + b[0]], **more,
    )  # fmt: skip


def grows(a: list[int], b: list[int]) -> list[int]:
    a.extend(b)
    return a


@pytest.mark.parametrize(
    ("own", "samples", "message"),
    [
        (total(combine=lambda a, b: a - b), INTS, "combine is wrong; expected -3 over 3, got 3 by "),
        (total(combine=lambda a, b: a * 2 + b), INTS, "combine is wrong"),
        (total(combine=lambda a, b: a), INTS, "combine is wrong"),
        (total(identity=lambda: 1), INTS, "combine is wrong; expected "),
        (total(accumulate=lambda s, v: s + v + 1), INTS, "accumulate is wrong; "),
        (total(inverse=lambda a, b: b - a), INTS, "inverse is wrong; "),
        (total(subtract=lambda s, v: s), INTS, "subtract is wrong; "),
        (counted(subtract=forgets_zeros), INTS, "wrong; expected 0 over .*, got 1 by taking 3 out of 3"),
        (counted(subtract=lambda s, x: s[x]), INTS, "expected subtract to return a dict"),
        (counted(subtract=lambda s, x: s.pop("no")), INTS, "subtract raised KeyError"),
        (counted(inverse=lambda a, b: a), INTS, "inverse is wrong; "),
        (sums(subtract=lambda s, x: [s[0] - x]), [0.1, 0.2, 0.3], "subtract is wrong; .* by taking 0.1 out"),
        (sums(inverse=lambda a, b: [a[0] - b[0]]), [0.1, 0.2, 0.3], "inverse is wrong"),
        (mean(subtract=lambda s, x: (s[0] - x, s[1])), [0.1, 0.2], "subtract is wrong"),
        (tm.aggregate("path", identity=list, accumulate=appended, combine=grows, lower=str), INTS,
         "combine is wrong; expected "),
        (tm.aggregate("kept", identity=list, accumulate=appended, combine=grows, freeze=list, lower=len),
         INTS, "combine changes a frozen state, got that of "),
        (longest_run(subtract=lambda runs, v: runs[1:]), INTS, "subtract is wrong"),
    ],
)  # fmt: skip
def test_functions_that_do_not(own: Any, samples: list[Any], message: str) -> None:
    with pytest.raises(tm.UserError, match=message):
        tm.check_aggregate(own, samples)


@pytest.mark.parametrize("samples", [[], [1, "a"], [(1, 2), 3], [None], [object()]])
def test_samples_that_cannot_be_tried(samples: list[Any]) -> None:
    with pytest.raises(tm.UserError, match=r"^check_aggregate: expected samples"):
        tm.check_aggregate(total(), samples)


def test_something_else_than_an_aggregate() -> None:
    with pytest.raises(tm.UserError, match=r"expected what tm\.aggregate returned"):
        tm.check_aggregate(lambda x: x, [1])  # type: ignore[arg-type,return-value]
