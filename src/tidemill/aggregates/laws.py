"""Check the functions of a user's aggregate against each other, on samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tidemill.aggregates.algebra import Aggregate, Algebra, ObjectForm, as_state
from tidemill.aggregates.containers import Containers
from tidemill.aggregates.layout import Layout, layout
from tidemill.aggregates.values import functions, lower
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.types import BOOL, FLOAT64, INT64, STRING, DataType
from tidemill.expr.fluent import Expr
from tidemill.expr.nodes import Column

Row = tuple[Any, ...]
_FAILS = "no result: lower raises an error"


def check_aggregate(own: Callable[..., Aggregate], samples: Iterable[Any]) -> None:
    """Raise a `UserError` if the functions of an aggregate contradict each other on samples.

    A sample is a value of the argument, or a tuple of the values of several. All stretches of the samples are
    tried, so a dozen is enough; have values among them that are equal, and that lie far apart. What is
    compared are results, of partials that were made in different ways:

    - `combine` of the partials of two halves is the partial of the whole, in any order if `commutative`;
    - `identity` changes nothing, and `accumulate` of a row does what `combine` with its `lift` does;
    - `subtract` and `inverse` undo what was added, to the last bit where windows use them;
    - partials can be saved, and frozen ones do not change.

    >>> from tidemill.aggregates.user import aggregate
    >>> span = aggregate(
    ...     "span", identity=list, accumulate=lambda s, x: [*s, x], combine=lambda a, b: a + b,
    ...     subtract=lambda s, x: s[:-1], lower=lambda s: max(s) - min(s), returns="int64",
    ... )
    >>> try:
    ...     check_aggregate(span, [3, 1, 4])
    ... except UserError as wrong:
    ...     print(wrong.expected, "but", wrong.got)
    3 over [1, 4] but 2 by taking 3 out of [3, 1, 4]
    """
    rows = [s if isinstance(s, tuple) else (s,) for s in samples]
    if not rows or len({len(r) for r in rows}) != 1:
        raise UserError(
            "check_aggregate", expected="samples, all of as many arguments", got=f"{rows!r:.200}"
        )
    names = [f"x{i}" for i in range(len(rows[0]))]
    schema = Schema(tuple((n, _type(column)) for n, column in zip(names, zip(*rows))))
    made = own(*(Expr(Column(n)) for n in names))
    if not isinstance(made, Aggregate):
        raise UserError("check_aggregate", expected="what tm.aggregate returned", got=repr(own))
    rows = [tuple(float(v) if schema[n] == FLOAT64 else v for n, v in zip(names, r)) for r in rows]
    _Laws(layout((("r", made),), schema), rows).check()


def _type(column: Sequence[Any]) -> DataType:
    kinds = {type(v) for v in column}
    for python, kind in (({bool}, BOOL), ({int}, INT64), ({int, float}, FLOAT64), ({str}, STRING)):
        if kinds <= python:
            return kind
    raise UserError(
        "check_aggregate", expected="samples of bool, int, float or str, one type for each argument",
        got=f"{column!r:.200}",
    )  # fmt: skip


class _Laws:
    def __init__(self, layout: Layout, rows: list[Row]) -> None:
        self._layout, self._rows = layout, rows
        self._part, self._result = layout.parts[0], layout.results[0]
        assert isinstance(self._part.part.algebra, Algebra)
        self._algebra = self._part.part.algebra
        self._own = functions(self._part)
        form = self._part.form
        assert form is not None
        self._exact = form.subtracts or isinstance(form, ObjectForm)
        """Whether windows may subtract."""
        self._all = self._own.fold(rows)

    def check(self) -> None:
        n = len(self._rows)
        for i, j in itertools.combinations(range(n + 1), 2):
            for order in (1, -1) if self._algebra.commutative else (1,):
                self._check_halves(self._rows[i:j][::order])
                self._check_undoing(self._rows[i:j][::order])
        for row in self._rows:
            self._check_row(row)

    def _check_halves(self, rows: list[Row]) -> None:
        fold, combine = self._own.fold, self._own.combine
        for cut in range(len(rows) + 1):
            a, b = rows[:cut], rows[cut:]
            halves = f"by combining {_shown(a)} and {_shown(b)}"
            before = fold(a)
            text = self._written(before)
            self._same("combine", combine(before, fold(b)), fold(rows), rows, halves)
            if self._written(before) != text:
                raise UserError(self._step, "combine changes a frozen state", got=f"that of {_shown(a)}")
            if self._algebra.commutative:
                flipped = f"by combining {_shown(b)} and {_shown(a)}"
                self._same("combine", combine(fold(b), fold(a)), fold(rows), rows, flipped)
        if isinstance(self._part.form, ObjectForm):
            own = Containers(self._algebra)
            saved = (own.read(own.written(fold(rows)[0])),)
            self._same("saving", saved, fold(rows), rows, "after it was saved and read")

    def _check_undoing(self, rows: list[Row]) -> None:
        fold, own = self._own.fold, self._own
        if own.inverse_into is not None:
            for cut in range(len(rows) + 1):
                out, left = rows[:cut], rows[cut:]
                how = f"by taking {_shown(out)} out of {_shown(rows)}"
                whole = own.combine(fold(out), fold(left))
                self._same("inverse", own.inverse_into(whole, fold(out)), fold(left), left, how, self._exact)
        if own.subtract is not None:
            state = own.start()
            for row in rows:
                state = own.add(state, row)
            for cut, row in enumerate(rows):
                try:
                    state = own.subtract(state, row)
                except UserError:
                    raise
                except Exception as failed:
                    raise UserError(
                        self._step, f"subtract raised {type(failed).__name__}: {failed}",
                        got=f"{_shown([row])} out of {_shown(rows[cut:])}",
                    ) from failed  # fmt: skip
                left = rows[cut + 1 :]
                how = f"by taking {_shown([row])} out of {_shown(rows[cut:])}"
                found = own.finish(own.copy_state(state))
                self._same("subtract", found, fold(left), left, how, self._exact)

    def _check_row(self, row: Row) -> None:
        algebra = self._algebra
        if algebra.freeze is not None:  # nothing else adds a row to a state that is not frozen
            return
        bare = not isinstance(algebra.identity(self._part.types), tuple)
        whole = isinstance(self._part.form, ObjectForm)

        def state_of(value: Any) -> Any:
            return (value,) if whole else as_state(value)

        lifted = state_of(algebra.lift(*row))
        alone = f"by combining identity and lift of {_shown([row])}"
        self._same("combine", self._own.combine(self._own.identity(), lifted), lifted, [row], alone)
        for rows in ([], self._rows) if algebra.accumulate is not None else ():
            assert algebra.accumulate is not None
            state = self._own.copy(self._own.fold(rows))
            added = state_of(algebra.accumulate(state[0] if bare or whole else state, *row))
            expected = self._own.combine(self._own.fold(rows), lifted)
            how = f"by accumulate of {_shown([row])}, not combine with its lift"
            self._same("accumulate", added, expected, [*rows, row], how)

    @property
    def _step(self) -> str:
        return f"aggregate {self._algebra.name}"

    def _written(self, state: Any) -> str:
        if not isinstance(self._part.form, ObjectForm):
            return ""
        return Containers(self._algebra).written(state[0])

    def _same(
        self, what: str, found: Any, expected: Any, rows: list[Row], how: str, exact: bool = False
    ) -> None:
        """Raise an error unless two partials give one result, now and after more rows."""
        after = [self._own.combine(state, self._all) for state in (found, expected)]
        for a, b, then in ((found, expected, ""), (*after, ", then all")):
            got, want = self._lowered(a), self._lowered(b)
            if not _equal(got, want, exact):
                raise UserError(
                    self._step, f"{what} is wrong", expected=f"{want!r:.100} over {_shown(rows)}{then}",
                    got=f"{got!r:.100} {how}",
                )  # fmt: skip

    def _lowered(self, state: Any) -> Any:
        states: list[Any] = [(1,)] * len(self._layout.parts)
        states[0] = state
        try:
            return lower(self._result, self._layout, states)
        except (UserError, ArithmeticError, ValueError, LookupError, TypeError):
            return _FAILS  # as it may where there are no rows


def _equal(a: Any, b: Any, exact: bool) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        close = a == b if exact else math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
        return close or (math.isnan(a) and math.isnan(b))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_equal(x, y, exact) for x, y in zip(a, b))
    return bool(a == b)


def _shown(rows: list[Row]) -> str:
    """Rows as the user gave them."""
    values = [r[0] if len(r) == 1 else r for r in rows]
    return repr(values[0]) if len(values) == 1 else f"{values!r:.200}"
