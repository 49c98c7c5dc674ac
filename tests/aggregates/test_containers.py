"""Partials that are lists, maps and sets: written down, copied, frozen and checked."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.conformance.harness import assert_same, by_reference, locally
from tests.conformance.user_states import appended
from tidemill import col
from tidemill.aggregates.algebra import Algebra
from tidemill.aggregates.containers import Containers
from tidemill.stream import Stream

STREAM = tm.stream("s", time="t", schema={"t": "int64", "v": "int64"})
ROWS: list[dict[str, Any]] = [{"t": t, "v": None if t % 7 == 0 else (t * 5) % 11} for t in range(40)]


def own(name: str = "own", **functions: Any) -> Any:
    base: dict[str, Any] = {
        "identity": list, "accumulate": appended, "combine": lambda a, b: a + b, "lower": len
    }
    return tm.aggregate(name, **(base | functions))


def ask(aggregate: Any, window: tm.Window | None = None) -> Stream:
    return STREAM.window(window or tm.hopping(20, every=2)).agg(r=aggregate(col.v))


# --- as text --------------------------------------------------------------------------------------

LISTS = Containers(Algebra("own", lambda types: [], lambda x: [x], lambda a, b: a + b))  # type: ignore[arg-type,return-value]
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
hashable = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5)
states = st.recursive(
    hashable,
    lambda inner: st.lists(inner) | st.dictionaries(hashable, inner) | st.lists(inner).map(tuple)
    | st.sets(hashable) | st.frozensets(hashable),
    max_leaves=12,
)  # fmt: skip


def typed(value: Any) -> Any:
    """A value that equals another only if all types are equal, too."""
    if isinstance(value, dict):
        return dict, [(typed(k), typed(v)) for k, v in value.items()]
    if isinstance(value, (set, frozenset)):
        return type(value), sorted(repr(typed(v)) for v in value)
    return type(value), [typed(v) for v in value] if isinstance(value, (list, tuple)) else repr(value)


@given(st.lists(states))
def test_what_is_written_is_read(state: list[Any]) -> None:
    assert typed(LISTS.read(LISTS.written(state))) == typed(state)


@pytest.mark.parametrize(
    "text",
    ["", "[", "5", "null", '{"map": []}', '[{"map": 3}]', '[{"map": [[[1], 2]]}]', '[{"map": [[1, 2, 3]]}]',
     '[{"else": []}]', '[{"set": [[]]}]', '[{"set": [], "map": []}]', "[{}]", "[" * 100_000],
)  # fmt: skip
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(tm.UserError, match=r"^aggregate own: expected "):
        LISTS.read(text)


# --- functions may change what they are given -------------------------------------------------------


def emptied(a: list[int], b: list[int]) -> list[int]:
    while b:
        a.append(b.pop())
    return a


def spent(state: list[int]) -> int:
    found = len(state) * 100 + sum(state)
    state.clear()
    return found


@pytest.mark.parametrize("more", [{}, {"inverse": lambda a, b: [a.remove(x) for x in b] and a}])
@pytest.mark.parametrize(
    "window", [tm.tumbling(4), tm.hopping(8, every=2), tm.hopping(20, every=2), tm.per_event(9)], ids=str
)
def test_partials_of_other_windows_do_not_change(window: tm.Window, more: dict[str, Any]) -> None:
    query = ask(own(combine=emptied, lower=spent, **more), window)
    plain = ask(own(lower=lambda state: len(state) * 100 + sum(state)), window)
    expected = by_reference(plain, ROWS)
    assert_same(locally(query, ROWS), expected, query.schema)
    assert_same(by_reference(query, ROWS), expected, query.schema)


def test_an_identity_that_is_one_object_is_copied() -> None:
    shared: list[int] = []
    query = ask(own(identity=lambda: shared))
    assert_same(locally(query, ROWS), by_reference(ask(own()), ROWS), query.schema)
    assert shared == []


def test_frozen_partials_are_all_that_combine_and_lower_get() -> None:
    frozen: list[tuple[int, ...]] = []

    def freeze(state: list[int]) -> tuple[int, ...]:
        if state:  # types are found on frozen identities
            frozen.append(tuple(state))
        return tuple(state)

    def combine(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        assert type(a) is type(b) is tuple
        return a + b

    def lower(state: tuple[int, ...]) -> int:
        assert type(state) is tuple
        return len(state)

    query = ask(own(freeze=freeze, combine=combine, lower=lower))
    assert_same(locally(query, ROWS), by_reference(ask(own()), ROWS), query.schema)
    assert len(frozen) == len({row["t"] // 2 for row in ROWS if row["v"] is not None}), "once for each pane"


# --- what is wrong is said --------------------------------------------------------------------------


def fails(x: Any) -> Any:
    raise ArithmeticError(f"no {x}")


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"accumulate": lambda s, x: s.append(x)},
         r"expected accumulate to return a list, .* got None — return the state after changing it"),
        ({"accumulate": lambda s, x: (*s, x)}, r"expected accumulate to return a list, .* got \(.*\)"),
        ({"combine": lambda a, b: {}}, r"expected combine to return a list, as identity does, got {}"),
        ({"accumulate": lambda s, x: [*s, Fraction(x, 3)]},
         r"expected a state of numbers, text, and lists, .* got a Fraction: Fraction\("),
        ({"accumulate": lambda s, x: fails(x)}, r"accumulate raised ArithmeticError: no \d+, got arguments "),
        ({"combine": lambda a, b: fails("luck")}, r"combine raised ArithmeticError: no luck"),
        ({"freeze": lambda s: fails("ice")}, r"freeze raised ArithmeticError: no ice"),
        ({"lower": lambda s: fails("end") if s else 0}, r"lower raised ArithmeticError: no end, got "),
        ({"lower": lambda s: "many" if s else "", "returns": "int64"}, r"expected a int64, .* got 'many'"),
        ({"identity": lambda: [Fraction(1)]}, r"expected a state of numbers, text, .* got a Fraction"),
        ({"identity": lambda: Fraction(1)}, r"expected identity made of bool, int, .* got Fraction\(1, 1\)"),
        ({"lower": lambda s: s[0]}, r"expected returns= to name the type of the result"),
        ({"accumulate": None}, r"expected lift= or accumulate=, got neither"),
        ({"accumulate": None, "lift": lambda x: [x], "freeze": tuple}, r"expected accumulate= beside freeze"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("run", [locally, by_reference])
def test_wrong_functions(run: Any, functions: dict[str, Any], message: str) -> None:
    if run is by_reference and "combine" in functions:
        return  # the definition combines nothing
    with pytest.raises(tm.UserError, match=message):
        run(ask(own(**functions)), ROWS)
