"""Functions that tracing would get wrong without a word: they are found, and what looks like them is not."""

from __future__ import annotations

import functools
import operator
import random
import time
import uuid
from datetime import date, datetime
from typing import Any

import numpy as np
import pytest

import tidemill as tm
from tidemill.core.types import FLOAT64, INT64, STRING, TIMESTAMP, DataType, struct_of
from tidemill.spark.dia.elements import tuple_of
from tidemill.spark.dia.tracing import Opaque, Traced, trace
from tidemill.spark.dia.untraceable import CHANGES, asks

PAIR = tuple_of([INT64, INT64])
rng = random.Random(5)
numbers = np.random.default_rng(5)


def parsed(text: Any) -> int:
    try:
        return int(text)
    except Exception:
        return -1


def clean(x: Any) -> Any:
    return 0 if x is None else x


def twice(x: Any) -> Any:
    return 2 * x


def matched(x: Any) -> int:
    match x:
        case int():
            return 1
        case _:
            return 2


def late_import(x: Any) -> Any:
    import random

    return x * random.random()


looks = isinstance


class Cleaner:
    def __call__(self, x: Any) -> Any:
        return clean(x)

    @staticmethod
    def cleaned(x: Any) -> Any:
        return clean(x)


class Rows:
    """What a module of helpers looks like to a function."""

    clean = staticmethod(clean)


def around(function: Any) -> Any:
    @functools.wraps(function)
    def run(x: Any) -> Any:
        return function(x)

    return run


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (parsed, "catches"),
        (lambda x: parsed(x), "catches"),
        (lambda x: clean(x), "what a value is"),
        (functools.partial(clean), "what a value is"),
        (functools.lru_cache(clean), "what a value is"),
        (around(clean), "what a value is"),
        (Cleaner(), "what a value is"),
        (lambda x: Cleaner.cleaned(x), "what a value is"),
        (lambda x: Rows.clean(x), "what a value is"),
        (lambda x: sum(v for v in (x, x) if v is not None), "what a value is"),
        (lambda x: (lambda y: clean(y))(x), "what a value is"),
        (lambda x, then=clean: then(x), "what a value is"),
        (lambda x: twice(type(x)), "calls type"),
        (lambda x: 1 if looks(x, int) else 2, "calls isinstance"),
        (lambda x: operator.is_(x, None), "calls is_"),
        (lambda x: x.__class__.__name__ == "int", "reads .__class__"),
        (matched, "what a value is"),
        (late_import, CHANGES),
        (lambda x: random.random() < 0.1, CHANGES),
        (lambda x: rng.random() < 0.1, CHANGES),
        (lambda x: numbers.random() < 0.1, CHANGES),
        (lambda x: np.random.rand() < 0.1, CHANGES),
        (lambda x: time.time() > 5, CHANGES),
        (lambda x: (x, str(uuid.uuid4())), CHANGES),
        (lambda x: (x, datetime.now()), CHANGES),
        (lambda x: (x, date.today()), CHANGES),
    ],
)
def test_what_has_to_see_values(function: Any, why: str) -> None:
    found = asks(function)
    assert found is not None and why in found
    assert isinstance(trace(function, [INT64]), Opaque)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda e: e.time + e.uuid, struct_of({"time": INT64, "uuid": INT64})),  # fields, not our imports
        (lambda e: e.hour == 12, struct_of({"hour": INT64, "at": TIMESTAMP})),
        (lambda x: twice(x), INT64),
        (functools.partial(operator.add, 1), INT64),
        (lambda x: (x, datetime(2024, 1, 1)), INT64),
        (lambda x: x.hour() == 12, TIMESTAMP),
        (lambda x: tm.greatest(x, 3), INT64),
        (tm.udf(clean, returns="int64"), INT64),
        (lambda x: x**0.5, INT64),
        (lambda x: sum([x, x, 1]), INT64),
    ],
)
def test_what_is_traced(function: Any, kind: DataType) -> None:
    assert asks(function, [kind]) is None
    assert isinstance(trace(function, [kind]), Traced)


@pytest.mark.parametrize(
    ("function", "kind", "why"),
    [
        (str, PAIR, "no text"),
        (lambda e: "{}".format(e), PAIR, "no text"),  # noqa: UP032 - this one is not in the bytecode
        (lambda x: "%r" % x, INT64, "no text"),  # noqa: UP031 - nor this one
        (lambda x: x != None, INT64, "None is not known"),  # noqa: E711 - as people write it
        (lambda x: x == None, INT64, "None is not known"),  # noqa: E711
        (lambda x: x.hour == 12, TIMESTAMP, "reads .hour"),
        (lambda e: e[1].year in (2024,), tuple_of([INT64, TIMESTAMP]), "reads .year"),
        (lambda i: i**2, INT64, "would be a float"),
        (max, STRING, ""),
    ],
)
def test_what_an_expression_has_no_answer_to(function: Any, kind: DataType, why: str) -> None:
    found = trace(function, [kind])
    assert isinstance(found, Opaque) and why in found.why


def test_a_type_that_is_said_is_no_cast_that_loses_anything() -> None:
    assert isinstance(trace(lambda i: i, [INT64], returns=FLOAT64), Traced)
    for kind in (INT64, STRING):
        found = trace(lambda i: i / 2, [INT64], returns=kind)
        assert isinstance(found, Opaque) and "returns= says" in found.why


def test_functions_without_end_are_not_followed() -> None:
    def calling(n: int) -> Any:
        return (lambda x: x) if n == 0 else (lambda inner: lambda x: inner(x))(calling(n - 1))

    assert asks(calling(50)) is None
    found = asks(calling(300))
    assert found is not None and "more functions" in found
