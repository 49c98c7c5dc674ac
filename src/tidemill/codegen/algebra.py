"""Generate Numba source for algebras: identity, lift, combine, inverse and lower of partials.

A partial is a list of source expressions, one for each field. Recorded algebras are inlined; opaque ones
are called, if Numba can compile them (`compilable`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tidemill.aggregates.algebra import Algebra, Form, ObjectForm, OpaqueForm, Scalar
from tidemill.aggregates.layout import Layout, Result, StatePart
from tidemill.codegen.expressions import COMPILED, Emitter, Value, literal_value, returned
from tidemill.core.errors import InternalError
from tidemill.core.schema import Schema
from tidemill.core.types import STRING, DataType
from tidemill.expr.nodes import Call, Cast, Column, Literal, Node, Udf
from tidemill.expr.typing import type_of
from tidemill.jit.kernel import any_kernel
from tidemill.jit.user_functions import found_out_later, known, refusal

Partial = list[str]

_NUMPY = {"float64": "f8", "bool": "?"}


def numpy_type(kind: DataType) -> str:
    """Return the NumPy type of a scalar; strings are stored as ids, instants as ticks."""
    return _NUMPY.get(kind.kind, "i8")


def record_type(layout: Layout, parts: tuple[int, ...], spans: bool = False) -> np.dtype[Any]:
    """Return the type of a record with the partials of the given parts for one key and pane.

    A record that `spans` holds the rows of a key from the time `pane` to the time `end`.
    """
    fields = [("kid", "i8"), ("pane", "i8"), *([("end", "i8")] if spans else [])]
    for p in parts:
        fields += [(name, numpy_type(kind)) for name, kind in layout.parts[p].columns]
    return np.dtype(fields, align=True)


class PartCode:
    """Emits the algebra of one part."""

    def __init__(self, index: int, part: StatePart) -> None:
        assert part.form is not None
        self.index, self.part, self.form = index, part, part.form
        self.algebra = part.part.algebra
        assert isinstance(self.algebra, Algebra)

    @property
    def names(self) -> tuple[str, ...]:
        return self.part.columns.names

    @property
    def carries(self) -> tuple[str, ...]:
        """The fields that are 0 unless a partial exceeds int64."""
        found = self.form.carries if isinstance(self.form, Form) else ()
        return tuple(n for j, n in enumerate(self.names) if j in found)

    def identity(self) -> Partial:
        if isinstance(self.form, Form):
            return [literal_value(v).code for v in self.form.identity]
        pairs = zip(self.form.identity, self.form.fields)
        return [literal_value(Literal(v, kind)).code for v, kind in pairs]

    def lift(self, e: Emitter, args: list[Value]) -> Partial:
        if isinstance(self.form, Form):
            return self._inline(e, self.form.lift, {f"x{i}": a.code for i, a in enumerate(args)})
        return self._call(e, "lift", [a.code for a in args])

    def accumulate(self, e: Emitter, state: Partial, args: list[Value]) -> Partial:
        """Emit the state after adding a row."""
        if isinstance(self.form, Form) and self.form.accumulate is not None:
            inputs = self._side("a", state) | {f"x{i}": a.code for i, a in enumerate(args)}
            return self._inline(e, self.form.accumulate, inputs)
        return self.combine(e, state, self.lift(e, args))

    def take(self, e: Emitter, fields: Partial, args: list[Value]) -> None:
        """Emit code that adds a row to the state in `fields`.

        A carry is nearly always 0. Its field is then not written: that would cost as much as the sum.
        """
        carried = self._carried()
        kinds = [kind for _, kind in self.part.columns]
        state = [
            f if j in carried else e.assign(f, kind).code
            for j, (f, kind) in enumerate(zip(fields, kinds))
        ]
        if carried:
            assert isinstance(self.form, Form) and self.form.accumulate is not None
            inputs = self._side("a", state) | {f"x{i}": a.code for i, a in enumerate(args)}
            nodes = tuple(carried.get(j, n) for j, n in enumerate(self.form.accumulate))
            after = self._inline(e, nodes, inputs)
        else:
            after = self.accumulate(e, state, args)
            after = [e.assign(code, kind).code for code, kind in zip(after, kinds)]
        for j, (field, code) in enumerate(zip(fields, after)):
            if j in carried:
                e.line(f"if {code} != 0:")
                e.line(f"    {field} = wrap_add({field}, {code})")
            else:
                e.line(f"{field} = {code}")

    def _carried(self) -> dict[int, Node]:
        """Return what a row adds to each carry that is updated by addition only."""
        if not isinstance(self.form, Form) or self.form.accumulate is None:
            return {}
        found = {}
        for j in self.form.carries:
            node = self.form.accumulate[j]
            if isinstance(node, Call) and node.function == "wrap_add" and node.args[0] == Column(f"a{j}"):
                found[j] = node.args[1]
        return found

    def combine(self, e: Emitter, a: Partial, b: Partial) -> Partial:
        if isinstance(self.form, Form):
            return self._inline(e, self.form.combine, self._side("a", a) | self._side("b", b))
        return self._call(e, "combine", [self._state(a), self._state(b)])

    def inverse(self, e: Emitter, a: Partial, b: Partial) -> Partial:
        if isinstance(self.form, Form) and self.form.inverse is not None:
            return self._inline(e, self.form.inverse, self._side("a", a) | self._side("b", b))
        if isinstance(self.form, OpaqueForm) and self.form.subtracts:
            return self._call(e, "inverse", [self._state(a), self._state(b)])
        raise InternalError(f"{self.part.part} has no inverse")

    def _side(self, side: str, partial: Partial) -> dict[str, str]:
        return {f"{side}{j}": code for j, code in enumerate(partial)}

    def _inline(self, e: Emitter, nodes: tuple[Node, ...], inputs: dict[str, str]) -> Partial:
        assert isinstance(self.form, Form)
        kinds = dict(
            [(f"x{i}", t) for i, t in enumerate(self.part.types)]
            + [(f"{s}{j}", t) for s in "ab" for j, t in enumerate(self.form.fields)]
        )
        with e.scope(kinds):
            for name, code in inputs.items():
                e.bind(Column(name), Value(code, None, kinds[name]))
            values = [e.emit(n) for n in nodes]
            for value in values:
                if value.null is not None and value.null != "False":
                    e.line(f"err |= NULL_STATE * ({value.null})")
            return [v.code for v in values]

    def _call(self, e: Emitter, function: str, args: list[str]) -> Partial:
        assert isinstance(self.form, OpaqueForm)
        name = f"f{self.index}_{function}"
        e.functions[name] = getattr(self.algebra, function)
        result = e.fresh()
        e.line(f"{result} = {name}({', '.join(args)})")
        if isinstance(self.form.identity, Scalar):
            return [result]
        return [f"{result}[{j}]" for j in range(len(self.form.fields))]

    def _state(self, partial: Partial) -> str:
        assert isinstance(self.form, OpaqueForm)
        if isinstance(self.form.identity, Scalar):
            return partial[0]
        return f"({', '.join(partial)},)"


def lower(e: Emitter, result: Result, layout: Layout, states: dict[int, Partial]) -> Value:
    """Emit the result of an aggregate from the partials of its parts."""
    own = [layout.parts[p] for p in result.parts]
    if isinstance(result.lower, Node):
        kinds = dict(f for part in own for f in part.columns)
        with e.scope(kinds):
            for p, part in zip(result.parts, own):
                for (name, kind), code in zip(part.columns, states[p]):
                    e.bind(Column(name), Value(code, None, kind))
            return e.emit(result.lower)
    name = f"f_lower{layout.results.index(result)}"
    e.functions[name] = result.lower
    args = [f"({', '.join(states[p])},)" for p in result.parts]
    return e.assign(returned(f"{name}({', '.join(args)})", result.type), result.type)


def compilable(part: StatePart) -> str:
    """Return why generated code cannot contain an algebra; empty if it can."""
    return _compilable(part, known())


@functools.lru_cache(maxsize=256)
def _compilable(part: StatePart, of: int) -> str:
    algebra, form = part.part.algebra, part.form
    if not isinstance(algebra, Algebra) or form is None:
        return ""
    if isinstance(form, Form):
        fields = [(f"{side}{j}", t) for side in "ab" for j, t in enumerate(form.fields)]
        inputs = [(f"x{j}", t) for j, t in enumerate(part.types)]
        functions = (form.identity, form.lift, form.combine, form.inverse or (), form.accumulate or ())
        nodes = tuple(node for function in functions for node in function)
        return unwritable(nodes, Schema((*fields, *inputs)))
    if isinstance(form, ObjectForm):
        return form.reason
    return _opaque_refusal(part)


@found_out_later
def _opaque_refusal(part: StatePart) -> str:
    algebra, form = part.part.algebra, part.form
    assert isinstance(algebra, Algebra) and isinstance(form, OpaqueForm)
    if STRING in (*part.types, *form.fields):
        return "a string is not a machine number"
    try:
        scalars = tuple(_sample(t) for t in part.types)
        state = form.identity[0] if isinstance(form.identity, Scalar) else tuple(form.identity)
        lifted = any_kernel(algebra.lift).compiled(*scalars)
        combined = any_kernel(algebra.combine).compiled(state, lifted)
        found = [("lift", lifted), ("combine", combined)]
        if form.subtracts:
            found.append(("inverse", any_kernel(algebra.inverse).compiled(combined, lifted)))
        for function, value in found:
            have, want = _types_of(value), _types_of(state)
            if have != want:  # compiled code would convert silently
                return f"{function} gives {', '.join(have)}, identity {', '.join(want)}"
    except Exception as refused:  # whatever Numba, or the function on a sample, raises
        return str(refused).splitlines()[0] if str(refused) else type(refused).__name__
    return ""


def _types_of(state: Any) -> list[str]:
    return [type(v).__name__ for v in (state if isinstance(state, tuple) else (state,))]


def unwritable(nodes: tuple[Node, ...], schema: Schema) -> str:
    """Return what generated code cannot express in recorded functions; empty if it can express all."""
    for node in (n for root in nodes for n in root.walk()):
        if isinstance(node, Literal) and node.type == STRING and node.value is not None:
            return f"the text {node} in it"
        if isinstance(node, Call) and node.function not in COMPILED:
            return f"{node.function} works on strings"
        if isinstance(node, Cast) and STRING in (node.to, type_of(node.arg, schema)):
            return "it casts strings"
        if isinstance(node, Udf):
            why = refusal(node.function, tuple(type_of(a, schema) for a in node.args), node.returns)
            if why:
                return why
    return ""


@found_out_later
def lower_refusal(function: Callable[..., Any], identities: tuple[Any, ...]) -> str:
    """Return why Numba cannot compile an opaque `lower` for states of these types; empty if it can."""
    try:
        any_kernel(function).compiled(*identities)
    except ZeroDivisionError:
        return ""
    except Exception:  # Numba raises many kinds; the function then runs in Python
        return "Numba cannot compile its lower function"
    return ""


def _sample(kind: DataType) -> Any:
    return {"float64": 1.0, "bool": True, "string": ""}.get(kind.kind, 1)
