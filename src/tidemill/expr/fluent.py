"""The fluent surface of expressions: `col.price * 2 > 10`, `when(...).then(...).otherwise(...)`, lambdas.

An `Expr` wraps a frozen node and builds new ones; a lambda over a row proxy gives the same tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import date, datetime, timedelta
from typing import Any, Union

from tidemill.core.brought_names import EXPRESSION, KnowsBroughtNames
from tidemill.core.errors import UserError
from tidemill.core.time import DurationLike, duration, instant
from tidemill.core.time_formats import time_format
from tidemill.core.types import (
    BOOL,
    DURATION,
    FLOAT64,
    INT64,
    NULL,
    STRING,
    TIMESTAMP,
    parse_type,
)  # fmt: skip
from tidemill.core.zones import UTC, known_zone
from tidemill.expr.functions import check_pattern
from tidemill.expr.nodes import Call, Cast, Column, Literal, Node, Udf
from tidemill.expr.patterns import extracting

Scalar = Union[None, bool, int, float, str, date, timedelta]
Operand = Union["Arithmetic", Scalar]


_UFUNCS = {
    "absolute": "abs", "fabs": "abs", "sign": "sign", "floor": "floor", "ceil": "ceil", "sqrt": "sqrt",
    "exp": "exp", "log": "log", "log2": "log2", "log10": "log10", "isnan": "is_nan", "negative": "neg",
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div",
    "floor_divide": "floordiv", "remainder": "mod", "power": "pow", "float_power": "pow",
    "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq",
    "not_equal": "ne", "logical_not": "not", "logical_and": "and", "logical_or": "or", "invert": "not",
    "bitwise_and": "and", "bitwise_or": "or",
}  # fmt: skip
"""Functions of NumPy by name, and ours of the same meaning."""
_INSTEAD = {
    "rint": "write .round(), which rounds half away from zero",
    "square": "write x * x", "cbrt": "write .pow(1 / 3)", "log1p": "write (1 + x).log()",
    "expm1": "write x.exp() - 1", "reciprocal": "write 1 / x",
    "minimum": "write tm.least(…), which skips nulls", "maximum": "write tm.greatest(…), which skips nulls",
    "fmin": "write tm.least(…), which skips nulls", "fmax": "write tm.greatest(…), which skips nulls",
    "add.reduce": "write tm.sum(…) in .agg(…)", "minimum.reduce": "write tm.min(…) in .agg(…)",
    "maximum.reduce": "write tm.max(…) in .agg(…)",
}  # fmt: skip

_RECORDING: ContextVar[bool] = ContextVar("recording", default=False)


@contextmanager
def recording() -> Iterator[None]:
    """Mark that a user's function runs on expressions: `str(x)` in it is then an error, not the text of x."""
    token = _RECORDING.set(True)
    try:
        yield
    finally:
        _RECORDING.reset(token)


class Arithmetic:
    """What an expression and the result of an aggregate have in common: both stand for a value of a row.

    `==` is not among it: aggregates are compared by what they are.
    """

    __slots__ = ()

    @property
    def node(self) -> Node:
        """The expression as a frozen tree."""
        raise NotImplementedError

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Expr:
        """NumPy's functions of numbers, such as `np.log(col.v)`, where there is one of ours.

        >>> import numpy as np
        >>> np.log(col.v) + np.float64(2) * col.w
        (log(col.v) + (2.0 * col.w))
        """
        ours = _UFUNCS.get(ufunc.__name__)
        if ours is None or method != "__call__" or options:
            name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
            how = "with options " if options and ours else ""
            raise UserError(
                "expression", f"np.{name} {how}cannot see the values of {self.node}",
                hint=_INSTEAD.get(name) or "write it with methods of expressions, such as .round() and "
                f".log(), or call it in a function: tm.udf(lambda x: np.{name}(x), returns='float64')",
            )  # fmt: skip
        if ours in ("and", "or"):
            return Expr(Call(ours, tuple(condition(one, step=f"np.{ufunc.__name__}") for one in inputs)))
        return call(ours, *map(_value, inputs))

    def __bool__(self) -> bool:
        raise UserError(
            "expression",
            f"{self.node} has no truth value until it meets a row",
            hint="write & | ~ instead of and/or/not, .is_in() instead of in, when() instead of if",
        )

    # arithmetic
    def __add__(self, other: Operand) -> Expr:
        return call("add", self, other)

    def __radd__(self, other: Operand) -> Expr:
        return call("add", other, self)

    def __sub__(self, other: Operand) -> Expr:
        return call("sub", self, other)

    def __rsub__(self, other: Operand) -> Expr:
        return call("sub", other, self)

    def __mul__(self, other: Operand) -> Expr:
        return call("mul", self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return call("mul", other, self)

    def __truediv__(self, other: Operand) -> Expr:
        return call("div", self, other)

    def __rtruediv__(self, other: Operand) -> Expr:
        return call("div", other, self)

    def __floordiv__(self, other: Operand) -> Expr:
        return call("floordiv", self, other)

    def __rfloordiv__(self, other: Operand) -> Expr:
        return call("floordiv", other, self)

    def __mod__(self, other: Operand) -> Expr:
        return call("mod", self, other)

    def __rmod__(self, other: Operand) -> Expr:
        return call("mod", other, self)

    def __pow__(self, other: Operand) -> Expr:
        return call("pow", self, other)

    def __rpow__(self, other: Operand) -> Expr:
        return call("pow", other, self)

    def __neg__(self) -> Expr:
        return call("neg", self)

    def __abs__(self) -> Expr:
        return call("abs", self)

    def abs(self) -> Expr:
        return call("abs", self)

    def sign(self) -> Expr:
        return call("sign", self)

    def floor(self) -> Expr:
        return call("floor", self)

    def ceil(self) -> Expr:
        return call("ceil", self)

    def round(self, digits: int = 0) -> Expr:
        """Round half away from zero."""
        return call("round", self, digits)

    def sqrt(self) -> Expr:
        return call("sqrt", self)

    def exp(self) -> Expr:
        return call("exp", self)

    def log(self) -> Expr:
        """Natural logarithm; null where the argument is not positive."""
        return call("log", self)

    def log2(self) -> Expr:
        return call("log2", self)

    def log10(self) -> Expr:
        return call("log10", self)

    def pow(self, exponent: Operand) -> Expr:
        return call("pow", self, exponent)

    # comparison
    def __lt__(self, other: Operand) -> Expr:
        return call("lt", self, _value(other))

    def __le__(self, other: Operand) -> Expr:
        return call("le", self, _value(other))

    def __gt__(self, other: Operand) -> Expr:
        return call("gt", self, _value(other))

    def __ge__(self, other: Operand) -> Expr:
        return call("ge", self, _value(other))

    def between(self, low: Operand, high: Operand) -> Expr:
        """Both ends included."""
        low, high = _value(low), _value(high)
        return (self >= low) & (self <= high)

    def is_in(self, values: Any) -> Expr:
        """Whether the value is one of the given constants."""
        if isinstance(values, str):
            raise UserError(
                "is_in", expected="a list of constants", got=repr(values), hint=f"write [{values!r}]"
            )  # fmt: skip
        listed = list(values)
        if any(v is None for v in listed):
            raise UserError(
                "is_in", expected="constants other than None", got=repr(listed),
                hint="test for null with .is_null()",
            )  # fmt: skip
        return call("is_in", self, *listed)

    # logic
    def __and__(self, other: Operand) -> Expr:
        return Expr(Call("and", (self.node, condition(other, step="&"))))

    def __rand__(self, other: Operand) -> Expr:
        return Expr(Call("and", (condition(other, step="&"), self.node)))

    def __or__(self, other: Operand) -> Expr:
        return Expr(Call("or", (self.node, condition(other, step="|"))))

    def __ror__(self, other: Operand) -> Expr:
        return Expr(Call("or", (condition(other, step="|"), self.node)))

    def __invert__(self) -> Expr:
        return call("not", self)

    def is_null(self) -> Expr:
        return call("is_null", self)

    def is_not_null(self) -> Expr:
        return call("is_not_null", self)

    def is_nan(self) -> Expr:
        return call("is_nan", self)

    def fill_null(self, value: Operand) -> Expr:
        return call("coalesce", self, value)

    def cast(self, to: object, *, strict: bool = True) -> Expr:
        """As another type. Where a value does not fit: an error, or null when not strict."""
        return Expr(Cast(self.node, parse_type(to, step="cast"), strict))


class Expr(KnowsBroughtNames, Arithmetic):
    """An expression over the columns of a row.

    >>> (col.price * 2 > 10) & col.ad.is_not_null()
    (((col.price * 2) > 10) & is_not_null(col.ad))
    """

    __slots__ = ("_node",)
    _brought, _called = EXPRESSION, "an expression"

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def node(self) -> Node:
        return self._node

    def __repr__(self) -> str:
        if _RECORDING.get():  # `str((x, y))` asks for it, too
            raise UserError(
                "expression", f"{self.node} has no text until it meets a row",
                hint="write .cast('string'), or wrap the function in tm.udf",
            )  # fmt: skip
        return str(self.node)

    def __round__(self, digits: int = 0) -> Expr:
        return self.round(digits)

    def __len__(self) -> int:
        raise self._one_value("len(...)", ".len() for text, .list_len() for a list")

    def __iter__(self) -> Iterator[Any]:
        raise self._one_value("sum(...) and the like", "tm.sum(...), tm.max(...) in .agg(...)")

    def __contains__(self, item: object) -> bool:
        raise self._one_value("in", f".contains({item!r}), or .is_in([...]) the other way round")

    def __getitem__(self, at: Any) -> Expr:
        if isinstance(at, slice):
            raise self._one_value("[…:…]", ".substring(start, length), from 0")
        raise self._one_value(f"[{at!r}]", f".list_get({at!r}) for a list")

    def __float__(self) -> float:
        raise self._one_value("float(...)", ".cast('float64')")

    def __int__(self) -> int:
        raise self._one_value("int(...)", ".cast('int64')")

    def _one_value(self, how: str, ours: str) -> UserError:
        return UserError(
            "expression", f"{how} of Python cannot see the values of {self.node}", hint=f"write {ours}"
        )

    def __hash__(self) -> int:
        if _RECORDING.get():  # `table.get(x, 0)` and `x in a_set` would find nothing, and say so
            raise UserError(
                "expression", f"{self.node} has no hash until it meets a row",
                hint="write .is_in() instead of in, or wrap the function in tm.udf",
            )  # fmt: skip
        return hash(self.node)

    def __eq__(self, other: Operand) -> Expr:  # type: ignore[override]
        return call("eq", self, _value(other))

    def __ne__(self, other: Operand) -> Expr:  # type: ignore[override]
        return call("ne", self, _value(other))

    # time parts, UTC
    def year(self) -> Expr:
        return call("year", self)

    def month(self) -> Expr:
        return call("month", self)

    def day(self) -> Expr:
        return call("day", self)

    def day_of_week(self) -> Expr:
        """Monday is 1, Sunday is 7."""
        return call("day_of_week", self)

    def day_of_year(self) -> Expr:
        return call("day_of_year", self)

    def hour(self) -> Expr:
        return call("hour", self)

    def minute(self) -> Expr:
        return call("minute", self)

    def second(self) -> Expr:
        return call("second", self)

    def microsecond(self) -> Expr:
        return call("microsecond", self)

    def truncate(self, every: DurationLike) -> Expr:
        """A timestamp floored to a multiple of a duration since the epoch."""
        ticks = duration(every, step="truncate").ticks
        if ticks <= 0:
            raise UserError("truncate", expected="a positive duration", got=repr(every))
        return Expr(Call("truncate", (self.node, Literal(ticks, DURATION))))

    # times of zones, and times as text
    def local_time(self, tz: Any) -> Expr:
        """What the clock of a time zone shows at an instant, as a timestamp: for its hour, day or text.

        The result is no instant any more: `col.t.local_time("Europe/Berlin").hour()` is the hour in Berlin.
        """
        return call("local_time", self, known_zone(tz, step="local_time"))

    def from_local_time(self, tz: Any, *, strict: bool = True) -> Expr:
        """The instant at which the clock of a time zone shows a time, the earlier one if it does twice.

        A time that the clock skips is an error, or null when not strict.
        """
        name = "from_local_time" if strict else "try_from_local_time"
        return call(name, self, known_zone(tz, step="from_local_time"))

    def strptime(self, *formats: str, tz: Any = UTC, strict: bool = True) -> Expr:
        """Text as an instant, by the first format that fits: `col.day.strptime("%m/%d/%Y", "%d.%m.%Y")`.

        Text without `%z` is in the time zone. Where no format fits, or there is no such time: an error, or
        null when not strict. docs/files.md has the directives.
        """
        if not formats:
            raise UserError("strptime", expected="at least one format, such as '%m/%d/%Y'", got="none")
        for text in formats:
            time_format(text, "strptime", parsed=True)
        return call("strptime" if strict else "try_strptime", self, known_zone(tz, step="strptime"), *formats)

    def strftime(self, format: str, tz: Any = UTC) -> Expr:
        """An instant as text, as the clock of a time zone shows it: `col.t.strftime("%Y-%m-%d %H:%M")`."""
        time_format(format, "strftime", parsed=False)
        return call("strftime", self, format, known_zone(tz, step="strftime"))

    # strings
    def len(self) -> Expr:
        """Length of a string, in code points."""
        return call("length", self)

    def lower(self) -> Expr:
        return call("lower", self)

    def upper(self) -> Expr:
        return call("upper", self)

    def strip(self) -> Expr:
        """Remove leading and trailing spaces."""
        return call("strip", self)

    def contains(self, part: str) -> Expr:
        return call("contains", self, part)

    def starts_with(self, part: str) -> Expr:
        return call("starts_with", self, part)

    def ends_with(self, part: str) -> Expr:
        return call("ends_with", self, part)

    def matches(self, pattern: str) -> Expr:
        """Whether a regular expression (RE2 syntax) is found anywhere in the string."""
        return call("matches", self, pattern)

    def extract(self, pattern: str, group: int | str | None = None) -> Expr:
        """What a group of a regular expression (RE2 syntax) captures in a string; null without a match.

        Without a group it is the first one in parentheses, or all that matches where there is none. Group 0
        is all that matches. A group that takes no part in the match is empty text.
        """
        if not isinstance(pattern, str):
            raise UserError("extract", expected="a regular expression", got=repr(pattern))
        if not isinstance(group, (int, str, type(None))):
            raise UserError("extract", expected="group= a number or a name", got=repr(group))
        check_pattern(pattern, "extract")
        return call("extract", self, extracting(pattern, group))

    def replace(self, old: str, new: str) -> Expr:
        """Replace every occurrence of a text by another."""
        return call("replace", self, _non_empty(old, "replace"), new)

    def substring(self, start: int, length: int) -> Expr:
        """`length` code points from position `start`, which counts from 0."""
        if start < 0 or length < 0:
            raise UserError("substring", expected="start and length >= 0", got=f"{start}, {length}")
        return call("substring", self, start, length)

    def find(self, part: str) -> Expr:
        """Position of the first occurrence, from 0, in code points; -1 when there is none."""
        return call("find", self, part)

    def split(self, separator: str) -> Expr:
        """Split at a separator, into a list."""
        return call("split", self, _non_empty(separator, "split"))

    def concat(self, *others: Operand) -> Expr:
        return call("concat", self, *others)

    # lists
    def list_len(self) -> Expr:
        return call("list_length", self)

    def list_get(self, index: int) -> Expr:
        """The item at a position from 0; null beyond the end."""
        return call("list_get", self, index)


class ColumnAccess:
    """Attribute and item access to columns: `col.price`, `col["unit price"]`.

    Where a column has the name of a method of `Expr`, nothing collides: `col.len` is a column.
    """

    def __getattr__(self, name: str) -> Expr:
        if name.startswith(("__", "_repr_", "_ipython_")):  # what notebooks ask every object for
            raise AttributeError(name)
        return Expr(Column(name))

    def __getitem__(self, name: str) -> Expr:
        return Expr(Column(name))

    def __call__(self, name: str) -> Expr:
        return Expr(Column(name))

    def __repr__(self) -> str:
        return "col"


col = ColumnAccess()


def lit(value: Scalar) -> Expr:
    """A constant. A `date` is the instant at which it begins, in UTC, as `datetime(2026, 1, 1)` is.

    >>> lit(3) + col.a
    (3 + col.a)
    """
    if value is None or type(value).__name__ == "NaTType":
        return Expr(Literal(None, NULL))
    if isinstance(value, datetime):
        return Expr(Literal(instant(value), TIMESTAMP))
    if isinstance(value, date):
        return Expr(Literal(instant(datetime(value.year, value.month, value.day)), TIMESTAMP))
    if isinstance(value, timedelta):
        return Expr(Literal(duration(value).ticks, DURATION))
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise UserError("literal", expected="an int within int64", got=str(value))
    for kind, dtype in ((bool, BOOL), (int, INT64), (float, FLOAT64), (str, STRING)):
        if isinstance(value, kind):
            return Expr(Literal(kind(value), dtype))
    if hasattr(value, "item") and not getattr(value, "shape", ()):  # a NumPy scalar
        return lit(value.item())
    raise UserError(
        "literal", expected="a bool, int, float, str, datetime, date, timedelta or None",
        got=f"{value!r} ({type(value).__name__})",
    )  # fmt: skip


def as_expr(value: Operand) -> Expr:
    """An expression, a constant or a lambda, as an expression."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, Arithmetic):
        return Expr(value.node)
    return Expr(traced(value, step="expression")) if callable(value) else lit(value)


def as_node(value: Operand) -> Node:
    return as_expr(value).node


def argument(value: Operand) -> Node:
    """The argument of an aggregate. A string names a column; `tm.lit("v")` is the text.

    >>> print(argument("price"), argument(lit("price")), argument(lambda e: e.price * 2))
    col.price 'price' (col.price * 2)
    """
    if isinstance(value, str):
        return Column(value)
    if type(value).__name__ in _BOOLS:
        raise _one_for_all_rows(value, step="aggregate", expected="a column or an expression")
    return as_node(value)


def computed(value: Any, *, step: str) -> Node:
    """The node of a computed column. A plain bool is the same for every row; see `condition`."""
    if callable(value) and not isinstance(value, (type, Expr)):
        node, value = _called(value, step=step)
        if node is not None:
            return node
    if type(value).__name__ in _BOOLS:
        raise _one_for_all_rows(value, step=step, expected="an expression")
    return traced(value, step=step)


def condition(value: Any, *, step: str) -> Node:
    """The node of a condition: an expression, or a lambda that gives one.

    A plain Python value is the same for every row, so whoever wrote it meant something else:
    `col.t.hour == 13` compares a method with 13, `e.v is not None` asks about the expression.
    """
    if callable(value) and not isinstance(value, (type, Expr)):
        node, plain = _called(value, step=step)
        if node is None:
            raise _one_for_all_rows(plain, step=step)
        return node
    if not isinstance(value, Arithmetic):
        raise _one_for_all_rows(value, step=step)
    return value.node


_BOOLS = ("bool", "bool_")
"""Python's and NumPy's."""


def _one_for_all_rows(value: Any, *, step: str, expected: str = "a condition on each row") -> UserError:
    if isinstance(value, str) and value.isidentifier():
        hint = f"write col.{value} for the column of that name"
    elif isinstance(value, str):
        hint = "conditions are expressions of Python: .where(col.v > 5)"
    elif step in ("&", "|") and type(value).__name__ not in _BOOLS:  # `5 & col.k` of `col.v > 5 & col.k > 1`
        hint = f"write parentheses on both sides: (col.a > 1) {step} (col.b < 5)"
    else:
        hint = (
            "write the parentheses of methods, col.t.hour() == 13, and col.v.is_not_null() in place of "
            f"'is not None'; a constant that is meant is tm.lit({value!r})"
        )
    got = f"{value!r} ({type(value).__name__}), which is the same for every row"
    return UserError(step, expected=expected, got=got, hint=hint)


def _value(other: Operand) -> Operand:
    """The other side of a comparison. `None` is refused: Python and SQL disagree about `x == None`."""
    if other is None:
        raise UserError(
            "expression", "whether a value is None is not known until it meets a row",
            hint="write .is_null() or .is_not_null(): a comparison with null is null",
        )  # fmt: skip
    return other


def call(function: str, *args: Operand) -> Expr:
    return Expr(Call(function, tuple(as_node(a) for a in args)))


def least(*values: Operand) -> Expr:
    """The smallest of several values; nulls are skipped."""
    return call("least", *values)


def greatest(*values: Operand) -> Expr:
    """The greatest of several values; nulls are skipped."""
    return call("greatest", *values)


def coalesce(*values: Operand) -> Expr:
    """The first value that is not null."""
    return call("coalesce", *values)


def concat(*values: Operand) -> Expr:
    """Strings joined; null if any is null."""
    return call("concat", *values)


class When:
    """`when(condition).then(value)…otherwise(value)`; without `otherwise` the rest is null.

    >>> when(col.a > 1).then("big").otherwise("small")
    if_else((col.a > 1), 'big', 'small')
    """

    def __init__(self, branches: tuple[tuple[Node, Node], ...], given: Operand) -> None:
        self._branches, self._condition = branches, condition(given, step="when")

    def then(self, value: Operand) -> Then:
        return Then((*self._branches, (self._condition, as_node(value))))


class Then(Expr):
    """A choice so far, which is an expression; `.when` adds a branch, `.otherwise` the last one."""

    __slots__ = ("_branches",)

    def __init__(self, branches: tuple[tuple[Node, Node], ...]) -> None:
        self._branches = branches
        super().__init__(_nested(branches, Literal(None, NULL)))

    def when(self, condition: Operand) -> When:
        return When(self._branches, condition)

    def otherwise(self, value: Operand) -> Expr:
        return Expr(_nested(self._branches, as_node(value)))


def _nested(branches: tuple[tuple[Node, Node], ...], rest: Node) -> Node:
    for condition, value in reversed(branches):
        rest = Call("if_else", (condition, value, rest))
    return rest


def when(condition: Operand) -> When:
    """Start a choice; see `When`."""
    return When((), condition)


def udf(function: Callable[..., Any], *, returns: object) -> Callable[..., Expr]:
    """Use a plain Python function of scalars in expressions.

    It is compiled when Numba can, and runs row by row when not; `explain()` says which.

    >>> clip = udf(lambda x: min(x, 9), returns="int64")
    >>> clip(col.a)
    udf:<lambda>(col.a)
    """
    kind = parse_type(returns, step="udf")

    def apply(*args: Operand) -> Expr:
        return Expr(Udf(function, kind, tuple(as_node(a) for a in args)))

    return apply


def traced(value: Any, *, step: str) -> Node:
    """The node of an expression, a constant, or a lambda over a row proxy."""
    if isinstance(value, Arithmetic):
        return value.node
    if callable(value) and not isinstance(value, type):
        node, value = _called(value, step=step)
        if node is not None:
            return node
    return lit(value).node


def _called(function: Callable[..., Any], *, step: str) -> tuple[Node | None, Any]:
    """What a lambda over a row proxy gives: the node of an expression, or else a plain value."""
    if isinstance(subject := getattr(function, "__self__", None), Expr):
        called = f"{subject.node}.{function.__name__}()"
        raise UserError(
            step, expected="an expression", got=f"the method {function.__name__} of {subject.node}",
            hint=f"write the parentheses: {called}",
        )  # fmt: skip
    try:
        with recording():
            value = function(col)
    except (TypeError, AttributeError, LookupError, ValueError) as wrong:
        raise UserError(
            step, f"the lambda failed while it was traced: {wrong}",
            hint="a lambda takes one row: lambda e: e.price > 1; wrap other Python in tm.udf",
        ) from wrong  # fmt: skip
    return (value.node, None) if isinstance(value, Arithmetic) else (None, value)


def _non_empty(text: str, step: str) -> str:
    if not text:
        raise UserError(step, expected="text of at least one character", got="''")
    return text
