"""Windows over floats: a grid of ticks on real numbers, so that engines only ever see int64 ticks.

Lengths, origins and starts are the decimals that the user wrote: 0.1 is a tenth. The *step* of a window is
the greatest common divisor of them all, a fraction, and tick `p` stands for `p * step`, rounded to the
nearest float. A value `x` has the tick with `value(tick) <= x < value(tick + 1)`: a row is in a window if and
only if `window_start <= x < window_end`, for the floats that the result shows. So 0.3 is in `[0.3, 0.4)`, not
in `[0.2, 0.3)`, although `0.3 // 0.1` is 2.

Both directions are expressions of scalar functions that every engine has, in float64 (`tick_of`, `value_of`).
Null, NaN, the infinities and values too far away for exact ticks have no tick: they get `NOWHERE`, which is
before the start of all windows, and are counted and read as such rows are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from tidemill.core.errors import UserError
from tidemill.core.time import FARTHEST, Domain, Duration
from tidemill.core.types import FLOAT64, INT64
from tidemill.expr.nodes import Call, Cast, Literal, Node
from tidemill.windows.decimals import common_step, farthest
from tidemill.windows.spec import GridWindow, Landmark, Sliding

NOWHERE = -FARTHEST
"""The tick of a value that has none."""
_FIRST = -(1 << 53)
"""Below every tick of a value, and above `NOWHERE`: where windows without a start begin."""


def tick_of(x: Node, step: Fraction) -> Node:
    """Return the tick of a float, as an expression.

    The quotient in float64 may be off by one, next to a bound: the bounds themselves decide.

    >>> from tidemill.core.schema import schema
    >>> from tidemill.expr.evaluate import evaluate
    >>> from tidemill.expr.nodes import Column
    >>> of = tick_of(Column("x"), Fraction(1, 10))
    >>> [evaluate(of, {"x": x}, schema({"x": "float64"})) for x in (0.3, 0.29, -0.05, -0.1)]
    [3, 2, -1, -1]
    """
    size, parts = _float(step.numerator), _float(step.denominator)
    near = Call("floor", (_div(_mul(x, parts), size),))

    def bound(tick: Node) -> Node:
        return _div(_mul(tick, size), parts)

    above = Call("add", (near, _float(1)))
    lower = Call("if_else", (Call("le", (bound(above), x)), above, near))
    exact = Call("if_else", (Call("gt", (bound(near), x)), Call("sub", (near, _float(1))), lower))
    # NaN is greater than every number, and a condition that is null is not true.
    inside = Call("le", (Call("abs", (x,)), _float(farthest(step))))
    return Call("if_else", (inside, Cast(exact, INT64), Literal(NOWHERE, INT64)))


def value_of(tick: Node, step: Fraction) -> Node:
    """Return the float that a tick stands for, as an expression; the division rounds once."""
    whole = _mul(tick, Literal(step.numerator, INT64))
    return _div(Cast(whole, FLOAT64), _float(step.denominator))


def on_ticks(specs: Sequence[Any]) -> tuple[Fraction, tuple[GridWindow, ...]]:
    """Return one step for several windows over a float, and the windows in ticks of it."""
    reals = [_real(spec) for spec in specs]
    step = common_step([spec.step for spec in reals if spec.step is not None], step=str(specs[0]))
    return step, tuple(_ticks(spec, step) for spec in reals)


def _real(spec: Any) -> GridWindow:
    """Return a window in ticks of a step; ints are multiples of 1."""
    if not isinstance(spec, (Sliding, Landmark)):
        raise UserError(
            f"window {spec}", expected="windows on a grid (tumbling, hopping, landmark) over a float",
            got=str(spec), hint="round to an integer: on=(col.x * 1000).round().cast('int64')",
        )  # fmt: skip
    return spec if spec.step is not None else replace(spec, step=Fraction(1))


def _ticks(spec: GridWindow, step: Fraction) -> GridWindow:
    assert spec.step is not None and isinstance(spec, (Sliding, Landmark))
    times = int(spec.step / step)

    def length(given: Duration) -> Duration:
        return Duration(given.ticks * times, Domain.LOGICAL)

    start = _FIRST if spec.start is None else spec.start * times
    fields: dict[str, Any] = {"origin": spec.origin * times, "start": start, "step": None, "grain": step}
    if isinstance(spec, Sliding):
        fields["range"] = length(spec.range)
    return replace(spec, every=length(spec.every), **fields)


def _mul(a: Node, b: Literal) -> Node:
    return a if b.value == 1 else Call("mul", (a, b))


def _div(a: Node, b: Literal) -> Node:
    return a if b.value == 1 else Call("div", (a, b))


def _float(value: float) -> Literal:
    return Literal(float(value), FLOAT64)
