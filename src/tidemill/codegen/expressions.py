"""Generate Numba source that evaluates expressions one row at a time.

Values are int64, float64 or bool scalars. A string is an int64 id, -1 for null, which
`texts` resolves (`kernels.texts`). Column names and string literals never appear in the source.

A value that only one branch needs is computed inside that branch, so a branch that is not taken cannot
fail.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tidemill.core.errors import InternalError
from tidemill.core.schema import Schema
from tidemill.core.types import BOOL, FLOAT64, INT64, STRING, DataType
from tidemill.expr.functions import round_scale
from tidemill.expr.nodes import Call, Cast, Column, Literal, Node, Udf
from tidemill.expr.typing import type_of


@dataclass(frozen=True)
class Value:
    """The source of a value and of its null flag (None: never null)."""

    code: str
    null: str | None
    type: DataType


@dataclass(frozen=True)
class Load:
    """The source that reads a column: its value, its null flag, and a flag for bad rows.

    The column failed for a bad row before the loop; this is an error only if the loop reads that row.
    """

    code: str
    null: str | None = None
    bad: str | None = None


class Emitter:
    """Collects the lines of one loop body."""

    def __init__(self, schema: Schema, loads: dict[str, Load], indent: int = 2) -> None:
        self.schema = schema
        self.loads = loads
        self.lines: list[str] = []
        self.functions: dict[str, Any] = {}
        self._indent = indent
        self._scopes: list[dict[Node, Value]] = [{}]
        self._count = 0

    # -- lines and names

    def line(self, text: str) -> None:
        self.lines.append("    " * self._indent + text)

    def fresh(self, prefix: str = "t") -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Open a nested block; values computed inside cannot be used outside."""
        self.line(header)
        self._indent += 1
        self._scopes.append({})
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self._scopes.pop()
        self._indent -= 1

    @contextmanager
    def scope(self, kinds: dict[str, DataType]) -> Iterator[None]:
        """Replace the columns temporarily, by the inputs of an algebra's function."""
        schema, scopes = self.schema, self._scopes
        self.schema, self._scopes = Schema(tuple(kinds.items())), [{}]
        yield
        self.schema, self._scopes = schema, scopes

    def bind(self, node: Node, value: Value) -> None:
        """Set the value of a node, usually a column."""
        self._scopes[-1][node] = value

    def assign(self, code: str, kind: DataType, null: str | None = None) -> Value:
        name = self.fresh()
        self.line(f"{name} = {code}")
        return Value(name, null, kind)

    # -- expressions

    def emit(self, node: Node) -> Value:
        known = self._known(node)
        if known is not None:
            return known
        # Emit unconditional arguments first, in a loop, so that long chains need no deep recursion.
        waiting = [node]
        while waiting:
            one = waiting[-1]
            missing = [a for a in _always_needed(one) if self._known(a) is None]
            if missing:
                waiting.extend(reversed(missing))
                continue
            waiting.pop()
            if self._known(one) is None:
                self._scopes[-1][one] = self._emit(one)
        return self._scopes[-1][node]

    def _known(self, node: Node) -> Value | None:
        return next((s[node] for s in reversed(self._scopes) if node in s), None)

    def truth(self, node: Node) -> str:
        """Return the source of a condition that is true if the value is true and not null."""
        value = self.emit(node)
        return value.code if value.null is None else f"({value.code} and not {value.null})"

    def _emit(self, node: Node) -> Value:
        if isinstance(node, Column):
            return self._load(node)
        if isinstance(node, Literal):
            return literal_value(node)
        if isinstance(node, Cast):
            return self._cast(node)
        if isinstance(node, Udf):
            return self._udf(node)
        if isinstance(node, Call):
            special = _SPECIAL.get(node.function)
            if special is not None:
                return special(self, node)
            kind = type_of(node, self.schema)
            args = [self.emit(a) for a in node.args]
            return _PLAIN[node.function](self, args, kind)
        raise InternalError(f"no code for {node!r}")

    def _load(self, node: Column) -> Value:
        load, kind = self.loads[node.name], self.schema[node.name]
        if load.bad is not None:
            self.line(f"err |= BAD_CAST * ({load.bad})")
        null = None if load.null is None else self.assign(load.null, BOOL).code
        return self.assign(load.code, kind, null)

    def can_fail(self, node: Node) -> bool:
        """Return whether evaluating a node can raise an error."""
        for n in node.walk():
            if isinstance(n, Udf) or (isinstance(n, Cast) and n.strict and n.to == INT64):
                return True
            if isinstance(n, Column) and n.name in self.loads and self.loads[n.name].bad:
                return True
            if isinstance(n, Call) and n.function in _CHECKED_ON_INTS:
                if type_of(n, self.schema) != FLOAT64:
                    return True
        return False

    def compares_text(self, node: Node) -> bool:
        """Return whether evaluating a node reads text, which takes longer than a branch."""
        calls = (n for n in node.walk() if isinstance(n, Call) and n.function in _COMPARING)
        return any(type_of(n.args[0], self.schema) == STRING for n in calls)

    def nulls(self, *values: Value) -> str | None:
        """Return the source of a flag that any of these values is null."""
        flags = list(dict.fromkeys(v.null for v in values if v.null is not None))
        if not flags:
            return None
        if len(flags) == 1:
            return flags[0]
        return self.assign(" or ".join(flags), BOOL).code

    def pure(self, code: str, kind: DataType, *args: Value) -> Value:
        """Emit an operation that cannot fail; it is computed even if an argument is null."""
        return self.assign(code, kind, self.nulls(*args))

    def guarded(self, kind: DataType, args: list[Value], body: Callable[[str], list[str]]) -> Value:
        """Emit an operation that may fail; it is computed only if no argument is null."""
        null, name = self.nulls(*args), self.fresh()
        lines = body(name)
        if null is None:
            for text in lines:
                self.line(text)
            return Value(name, None, kind)
        self.line(f"{name} = {zero_of(kind)}")
        with self.block(f"if not {null}:"):
            for text in lines:
                self.line(text)
        return Value(name, null, kind)

    def nullable(self, code: str, kind: DataType, bad: str, args: list[Value]) -> Value:
        """Emit an operation that is null outside its domain, where `bad` is true."""
        null = self.nulls(*args)
        flag = self.assign(bad if null is None else f"{null} or {bad}", BOOL).code
        name = self.fresh()
        self.line(f"{name} = {zero_of(kind)}")
        with self.block(f"if not {flag}:"):
            self.line(f"{name} = {code}")
        return Value(name, flag, kind)

    def _cast(self, node: Cast) -> Value:
        arg = self.emit(node.arg)
        have, want = type_of(node.arg, self.schema), node.to
        if have == FLOAT64 and want == INT64:
            if not node.strict:
                return self.nullable(
                    f"np.int64({arg.code})", INT64, f"not float_to_int_fits({arg.code})", [arg]
                )
            return self.guarded(
                INT64, [arg],
                lambda t: [
                    f"if not float_to_int_fits({arg.code}):", f"    {t} = 0", "    err |= BAD_CAST",
                    "else:", f"    {t} = np.int64({arg.code})",
                ],
            )  # fmt: skip
        if want == FLOAT64:
            code = f"1.0 if {arg.code} else 0.0" if have == BOOL else f"float({arg.code})"
            return self.assign(code, FLOAT64, arg.null)
        if want == BOOL:
            return self.assign(f"{arg.code} != 0", BOOL, arg.null)
        if have == BOOL:
            return self.assign(f"np.int64({arg.code})", want, arg.null)
        return Value(arg.code, arg.null, want)

    def _udf(self, node: Udf) -> Value:
        args = [self.emit(a) for a in node.args]
        name = f"f{len(self.functions)}"
        self.functions[name] = node.function
        call = f"{name}({', '.join(a.code for a in args)})"
        result = returned(call, node.returns)
        return self.guarded(node.returns, args, lambda t: [f"{t} = {result}"])


def returned(call: str, kind: DataType) -> str:
    """Return source that converts the result of a user's function to its declared type."""
    convert = {"float64": "float", "bool": "bool"}.get(kind.kind, "as_int")
    return f"{convert}({call})"


def _always_needed(node: Node) -> tuple[Node, ...]:
    """Return the arguments that are evaluated unconditionally."""
    branches = isinstance(node, Call) and node.function in _BRANCHING
    return node.children()[:1] if branches else node.children()


def zero_of(kind: DataType) -> str:
    return {"float64": "0.0", "bool": "False", "string": "-1"}.get(kind.kind, "0")


def literal_value(node: Literal) -> Value:
    if node.value is None:
        return Value(zero_of(node.type), None if node.type == STRING else "True", node.type)
    if node.type == FLOAT64:
        value = float(node.value)
        if math.isnan(value):
            return Value("NAN", None, FLOAT64)
        if math.isinf(value):
            return Value("INF" if value > 0 else "-INF", None, FLOAT64)
        return Value(repr(value), None, FLOAT64)
    if node.type == STRING:
        raise InternalError("a string literal in generated source")
    if node.type == BOOL:
        return Value(repr(bool(node.value)), None, BOOL)
    code = "INT_MIN" if node.value == -(1 << 63) else repr(int(node.value))
    return Value(code, None, node.type)


# --- functions ------------------------------------------------------------------------------------

Plain = Callable[[Emitter, list[Value], DataType], Value]


def _arithmetic(symbol: str, wrap: str, overflow: str) -> Plain:
    def emit(e: Emitter, args: list[Value], kind: DataType) -> Value:
        a, b = args[0].code, args[1].code
        if kind == FLOAT64:
            return e.pure(f"{a} {symbol} {b}", kind, *args)
        return e.guarded(
            kind, args,
            lambda t: [f"{t} = {wrap}({a}, {b})", f"err |= {overflow.format(a=a, b=b, t=t)}"],
        )  # fmt: skip

    return emit


def _div(e: Emitter, args: list[Value], kind: DataType) -> Value:
    a, b = args[0].code, args[1].code
    return e.nullable(f"{a} / {b}", kind, f"{b} == 0.0", args)


def _floordiv(e: Emitter, args: list[Value], kind: DataType) -> Value:
    a, b = args[0].code, args[1].code
    if kind == FLOAT64:
        return e.nullable(f"floordiv_float({a}, {b})", kind, f"{b} == 0.0", args)
    if _positive_constant(b):
        return e.pure(f"{a} // {b}", kind, *args)
    value = e.nullable(f"{a} // {b}", kind, f"{b} == 0", args)
    e.line(f"err |= OVERFLOW * ((not {value.null}) and {a} == INT_MIN and {b} == -1)")
    return value


def _mod(e: Emitter, args: list[Value], kind: DataType) -> Value:
    a, b = args[0].code, args[1].code
    if kind == FLOAT64:
        return e.nullable(f"mod_float({a}, {b})", kind, f"{b} == 0.0", args)
    if _positive_constant(b):
        return e.pure(f"{a} % {b}", kind, *args)
    # The CPU traps on INT_MIN % -1; the result is 0.
    return e.nullable(f"0 if {b} == -1 else {a} % {b}", kind, f"{b} == 0", args)


def _positive_constant(code: str) -> bool:
    return code.isdigit() and int(code) > 0


def _neg(e: Emitter, args: list[Value], kind: DataType) -> Value:
    a = args[0].code
    if kind == FLOAT64:
        return e.pure(f"-{a}", kind, *args)
    return e.guarded(
        kind, args, lambda t: [f"{t} = wrap_sub(0, {a})", f"err |= OVERFLOW * ({a} == INT_MIN)"]
    )


def _abs(e: Emitter, args: list[Value], kind: DataType) -> Value:
    a = args[0].code
    if kind == FLOAT64:
        return e.pure(f"abs({a})", kind, *args)
    return e.guarded(
        kind, args,
        lambda t: [
            f"{t} = wrap_sub(0, {a}) if {a} < 0 else {a}", f"err |= OVERFLOW * ({a} == INT_MIN)",
        ],
    )  # fmt: skip


def _by_kind(on_int: str, on_float: str) -> Plain:
    def emit(e: Emitter, args: list[Value], kind: DataType) -> Value:
        pattern = on_float if kind == FLOAT64 else on_int
        return e.pure(pattern.format(*(a.code for a in args)), kind, *args)

    return emit


def _round(e: Emitter, args: list[Value], kind: DataType) -> Value:
    if kind != FLOAT64:
        return args[0]
    scale = repr(round_scale(int(args[1].code)))
    return e.pure(f"round_float({args[0].code}, {scale})", kind, args[0])


def _domain(code: str, bad: str) -> Plain:
    def emit(e: Emitter, args: list[Value], kind: DataType) -> Value:
        names = [a.code for a in args]
        return e.nullable(code.format(*names), kind, bad.format(*names), args)

    return emit


def _pow(e: Emitter, args: list[Value], kind: DataType) -> Value:
    a, b = args[0].code, args[1].code
    bad = (
        f"({a} == 0.0 and {b} < 0.0) or "
        f"({a} < 0.0 and not math.isinf({a}) and not math.isinf({b}) and {b} == {b} "
        f"and {b} != np.floor({b}))"
    )
    return e.nullable(f"pow_float({a}, {b})", kind, bad, args)


def _compare(operator: str) -> Plain:
    negated = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}

    def emit(e: Emitter, args: list[Value], kind: DataType) -> Value:
        a, b = args[0].code, args[1].code
        if args[0].type == STRING:
            return _compare_strings(e, operator, args)
        if args[0].type != FLOAT64:
            return e.pure(f"{a} {operator} {b}", BOOL, *args)
        if _number(b):  # with a constant, ordering NaN needs no extra test
            wants_nan = operator in (">", ">=")
            code = f"not ({a} {negated[operator]} {b})" if wants_nan else f"{a} {operator} {b}"
        elif _number(a):
            wants_nan = operator in ("<", "<=")
            code = f"not ({a} {negated[operator]} {b})" if wants_nan else f"{a} {operator} {b}"
        else:
            code = {
                "<": f"less_float({a}, {b})", ">": f"less_float({b}, {a})",
                "<=": f"not less_float({b}, {a})", ">=": f"not less_float({a}, {b})",
            }[operator]  # fmt: skip
        return e.pure(code, BOOL, *args)

    return emit


def _equal(operator: str) -> Plain:
    def emit(e: Emitter, args: list[Value], kind: DataType) -> Value:
        a, b = args[0].code, args[1].code
        if args[0].type == STRING:
            return _compare_strings(e, operator, args)
        if args[0].type != FLOAT64 or _number(a) or _number(b):
            return e.pure(f"{a} {operator} {b}", BOOL, *args)
        same = f"equal_float({a}, {b})"
        return e.pure(same if operator == "==" else f"not {same}", BOOL, *args)

    return emit


def _compare_strings(e: Emitter, operator: str, args: list[Value]) -> Value:
    a, b = args[0].code, args[1].code
    null = e.assign(f"{a} < 0 or {b} < 0", BOOL).code
    return e.assign(f"(not {null}) and compare_text({a}, {b}, texts) {operator} 0", BOOL, null)


def _number(code: str) -> bool:
    return code[0].isdigit() or (code[0] == "-" and code[1:2].isdigit())


def _is_in(e: Emitter, args: list[Value], kind: DataType) -> Value:
    x, values = args[0].code, args[1:]
    if args[0].type == FLOAT64:
        tests = [f"equal_float({x}, {v.code})" for v in values]
    elif slots := _without_collisions([v.code for v in values]):
        table, factor, shift = slots
        tests = [f"{table}[np.int64(np.uint64({x}) * np.uint64({factor}) >> np.uint64({shift}))] == {x}"]
    else:
        tests = [f"{x} == {v.code}" for v in values]
    return e.pure(" or ".join(tests) or "False", BOOL, args[0])


_FEW_VALUES, _MANY_VALUES = 4, 64
"""So many constants are looked up in a hash table that is part of the code."""


def _without_collisions(codes: list[str]) -> tuple[tuple[int, ...], int, int] | None:
    """Return a hash table of ints, in which each has the slot `value * factor >> shift`, if there is one."""
    if not all(map(_number, codes)):
        return None
    values = sorted({int(code) for code in codes})
    if not _FEW_VALUES <= len(values) <= _MANY_VALUES:
        return None
    first = (2 * len(values) - 1).bit_length()
    for bits, seed in itertools.product((first, first + 1, first + 2), range(1, 64, 2)):
        factor, shift = seed * 0x9E3779B97F4A7C15 % (1 << 64), 64 - bits
        slots = {v * factor % (1 << 64) >> shift: v for v in values}
        if len(slots) == len(values):
            # A value in a wrong slot is never found there.
            return tuple(slots.get(s, values[0]) for s in range(1 << bits)), factor, shift
    return None


def _extreme(less: str) -> Plain:
    """Return an emitter for least or greatest, which skip nulls."""

    def emit(e: Emitter, args: list[Value], kind: DataType) -> Value:
        best = args[0]
        for other in args[1:]:
            best = _better(e, best, other, kind, less)
        return best

    return emit


def _better(e: Emitter, a: Value, b: Value, kind: DataType, less: str) -> Value:
    first, second = (b.code, a.code) if less == "<" else (a.code, b.code)
    if kind == STRING:
        order = f"compare_text({first}, {second}, texts) < 0"
        code = f"({b.code} if {a.code} < 0 or ({b.code} >= 0 and {order}) else {a.code})"
        return e.assign(code, kind)
    takes_b = f"less_float({first}, {second})" if kind == FLOAT64 else f"{first} < {second}"
    if a.null is None and b.null is None:
        return e.assign(f"{b.code} if {takes_b} else {a.code}", kind)
    an, bn = a.null or "False", b.null or "False"
    code = f"{b.code} if ({an} or (not {bn} and {takes_b})) else {a.code}"
    null = None if a.null is None or b.null is None else e.assign(f"{an} and {bn}", BOOL).code
    return e.assign(code, kind, null)


def _part(code: str) -> Plain:
    def emit(e: Emitter, args: list[Value], kind: DataType) -> Value:
        return e.pure(code.format(*(a.code for a in args)), kind, *args)

    return emit


def _truncate(e: Emitter, args: list[Value], kind: DataType) -> Value:
    t, every = args[0].code, args[1].code
    # Below the lowest multiple of `every` in int64, the result would overflow.
    lowest = -(-(1 << 63) // -int(every)) * int(every)
    return e.guarded(
        kind, args,
        lambda name: [
            f"{name} = wrap_mul({t} // {every}, {every})", f"err |= OVERFLOW * ({t} < {lowest})",
        ],
    )  # fmt: skip


def _unwrap(e: Emitter, args: list[Value], kind: DataType) -> Value:
    low, high = args[0].code, args[1].code
    return e.guarded(kind, args, lambda t: [f"{t} = {low}", f"err |= OVERFLOW * ({high} != 0)"])


def _not(e: Emitter, args: list[Value], kind: DataType) -> Value:
    return e.pure(f"not {args[0].code}", BOOL, *args)


_SUB_OVERFLOW = "OVERFLOW * ((({a} ^ {b}) & ({a} ^ {t})) < 0)"
_ADD_OVERFLOW = "OVERFLOW * ((({a} ^ {t}) & ({b} ^ {t})) < 0)"
_DAY = 86_400_000_000

_PLAIN: dict[str, Plain] = {
    "add": _arithmetic("+", "wrap_add", _ADD_OVERFLOW),
    "sub": _arithmetic("-", "wrap_sub", _SUB_OVERFLOW),
    "mul": _arithmetic("*", "wrap_mul", "OVERFLOW * mul_overflows({a}, {b})"),
    "div": _div, "floordiv": _floordiv, "mod": _mod, "neg": _neg, "abs": _abs,
    "sign": _by_kind("np.int64({0} > 0) - np.int64({0} < 0)", "sign_float({0})"),
    "floor": _by_kind("{0}", "floor_float({0})"), "ceil": _by_kind("{0}", "ceil_float({0})"),
    "round": _round, "sqrt": _domain("math.sqrt({0})", "{0} < 0.0"),
    "exp": _by_kind("exp_float({0})", "exp_float({0})"),
    "log": _domain("math.log({0})", "{0} <= 0.0"), "log2": _domain("np.log2({0})", "{0} <= 0.0"),
    "log10": _domain("math.log10({0})", "{0} <= 0.0"), "pow": _pow,
    "eq": _equal("=="), "ne": _equal("!="),
    "lt": _compare("<"), "le": _compare("<="), "gt": _compare(">"), "ge": _compare(">="),
    "not": _not, "is_in": _is_in, "least": _extreme("<"), "greatest": _extreme(">"),
    "is_nan": _part("{0} != {0}"),
    "year": _part(f"civil({{0}} // {_DAY})[0]"), "month": _part(f"civil({{0}} // {_DAY})[1]"),
    "day": _part(f"civil({{0}} // {_DAY})[2]"),
    "day_of_week": _part(f"({{0}} // {_DAY} + 3) % 7 + 1"),
    "day_of_year": _part(f"day_of_year({{0}} // {_DAY})"),
    "hour": _part("{0} // 3600000000 % 24"), "minute": _part("{0} // 60000000 % 60"),
    "second": _part("{0} // 1000000 % 60"), "microsecond": _part("{0} % 1000000"),
    "truncate": _truncate,
    "wrap_add": _part("wrap_add({0}, {1})"), "wrap_sub": _part("wrap_sub({0}, {1})"),
    "carry": _part("carry({0}, {1})"), "borrow": _part("borrow({0}, {1})"), "unwrap": _unwrap,
    "magnitude": _part("magnitude({0}, {1})"),
}  # fmt: skip


# --- functions that test for nulls or branch ------------------------------------------------------


_COMPARING = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "least", "greatest"))
_CHECKED_ON_INTS = frozenset(
    ("add", "sub", "mul", "neg", "abs", "floordiv", "truncate", "unwrap")
)


def _logic(e: Emitter, node: Call) -> Value:
    is_and = node.function == "and"
    left = e.emit(node.args[0])
    if not e.can_fail(node.args[1]) and not e.compares_text(node.args[1]):
        return _combine_logic(e, is_and, left, e.emit(node.args[1]))
    # The right side may fail, or reads text, so it is not evaluated if the left side decides.
    name, flag = e.fresh(), e.fresh("n")
    decided = f"not {left.code}" if is_and else left.code
    if left.null is not None:
        decided = f"({decided}) and not {left.null}"
    e.line(f"{name} = {not is_and}")
    e.line(f"{flag} = False")
    with e.block(f"if not ({decided}):"):
        both = _combine_logic(e, is_and, left, e.emit(node.args[1]))
        e.line(f"{name} = {both.code}")
        if both.null is not None:
            e.line(f"{flag} = {both.null}")
    return Value(name, flag, BOOL)


def _combine_logic(e: Emitter, is_and: bool, a: Value, b: Value) -> Value:
    word = "and" if is_and else "or"
    if a.null is None and b.null is None:
        return e.assign(f"{a.code} {word} {b.code}", BOOL)
    an, bn = a.null or "False", b.null or "False"
    sure_a = f"({'' if not is_and else 'not '}{a.code} and not {an})"
    sure_b = f"({'' if not is_and else 'not '}{b.code} and not {bn})"
    decided = e.assign(f"{sure_a} or {sure_b}", BOOL).code
    null = e.assign(f"({an} or {bn}) and not {decided}", BOOL).code
    return e.assign(f"not {decided}" if is_and else decided, BOOL, null)


_BRANCHING = frozenset(("and", "or", "if_else", "coalesce"))
_FEW_CHOICES = 20
"""Longer chains of if_else are emitted without nesting: Python allows 100 levels of indentation."""


def _choices(node: Call) -> tuple[list[tuple[Node, Node]], Node]:
    """Return the conditions and branches of a chain of if_else, and its final else branch."""
    found = []
    rest: Node = node
    while isinstance(rest, Call) and rest.function == "if_else":
        found.append((rest.args[0], rest.args[1]))
        rest = rest.args[2]
    return found, rest


def _many_choices(e: Emitter, branches: list[tuple[Node, Node]], rest: Node, kind: DataType) -> Value:
    """Emit a chain of if_else without nesting: each condition is tested while no branch was taken."""
    name, flag, open_ = e.fresh(), e.fresh("n"), e.fresh("n")

    def take(node: Node) -> None:
        value = e.emit(node)
        e.line(f"{name} = {value.code}")
        e.line(f"{flag} = {value.null or 'False'}")

    e.line(f"{name} = {zero_of(kind)}")
    e.line(f"{flag} = False")
    e.line(f"{open_} = True")
    for condition, branch in branches:
        with e.block(f"if {open_}:"):
            with e.block(f"if {e.truth(condition)}:"):
                take(branch)
                e.line(f"{open_} = False")
    with e.block(f"if {open_}:"):
        take(rest)
    return Value(name, None if kind == STRING else flag, kind)


def _if_else(e: Emitter, node: Call) -> Value:
    kind = type_of(node, e.schema)
    branches, rest = _choices(node)
    if len(branches) > _FEW_CHOICES:
        return _many_choices(e, branches, rest, kind)
    condition = e.truth(node.args[0])
    name, flag = e.fresh(), e.fresh("n")
    header = len(e.lines)
    nullable = False
    with e.block(f"if {condition}:"):
        then = e.emit(node.args[1])
        e.line(f"{name} = {then.code}")
        if then.null is not None:
            nullable = True
            e.line(f"{flag} = {then.null}")
    with e.block("else:"):
        other = e.emit(node.args[2])
        e.line(f"{name} = {other.code}")
        if other.null is not None:
            nullable = True
            e.line(f"{flag} = {other.null}")
    if not nullable:
        return Value(name, None, kind)
    e.lines.insert(header, e.lines[header][: -len(e.lines[header].lstrip())] + f"{flag} = False")
    return Value(name, flag, kind)


def _coalesce(e: Emitter, node: Call) -> Value:
    kind = type_of(node, e.schema)
    value = e.emit(node.args[0])
    for arg in node.args[1:]:
        if kind == STRING:
            other = e.emit(arg)
            value = e.assign(f"{value.code} if {value.code} >= 0 else {other.code}", kind)
            continue
        if value.null is None:
            return value
        name, flag = e.fresh(), e.fresh("n")
        e.line(f"{name} = {value.code}")
        e.line(f"{flag} = False")
        with e.block(f"if {value.null}:"):
            other = e.emit(arg)
            e.line(f"{name} = {other.code}")
            e.line(f"{flag} = {other.null or 'False'}")
        value = Value(name, flag if other.null else None, kind)
    return value


def _is_null(e: Emitter, node: Call) -> Value:
    value = e.emit(node.args[0])
    null = f"{value.code} < 0" if value.type == STRING else (value.null or "False")
    return e.assign(null if node.function == "is_null" else f"not ({null})", BOOL)


_SPECIAL: dict[str, Callable[[Emitter, Call], Value]] = {
    "and": _logic, "or": _logic, "if_else": _if_else, "coalesce": _coalesce,
    "is_null": _is_null, "is_not_null": _is_null,
}  # fmt: skip

COMPILED = frozenset(_PLAIN) | frozenset(_SPECIAL)
"""The functions that generated code supports; the others work on strings, in Arrow."""
