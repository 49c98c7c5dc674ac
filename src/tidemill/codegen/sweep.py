"""Generate the loop that aggregates what holds, in one pass over time (paper 000, section 5.2.1).

Each key has a record: the partials of its rows that hold, how many these are, and the value that it has since
some instant. Rows are added where they start and taken out where they end, which needs an exact inverse of
every part. Edges come in order of time, and those of a key at one instant are one moment: when the next one
comes, the moment is *settled*. If the value has changed, the row of the value before is complete.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidemill.aggregates.layout import Layout, Result
from tidemill.codegen.accumulate import with_arguments
from tidemill.codegen.algebra import PartCode, lower, numpy_type
from tidemill.codegen.columns import Columns
from tidemill.codegen.expressions import Emitter, Value
from tidemill.codegen.modules import load
from tidemill.core.types import FLOAT64, DataType
from tidemill.expr.nodes import Node
from tidemill.jit.kernel import any_kernel


def record_type(layout: Layout) -> np.dtype[Any]:
    """Return the type of the record of a key: `c<j>` and `d<j>` are its value, and whether it is not null."""
    fields = [("at", "i8"), ("holding", "i8"), ("since", "i8"), ("open", "i8")]
    for part in layout.parts:
        fields += [(name, numpy_type(kind)) for name, kind in part.columns]
    for j, result in enumerate(layout.results):
        fields += [(f"c{j}", numpy_type(result.type)), (f"d{j}", "?")]
    return np.dtype(fields, align=True)


@dataclass(frozen=True)
class SweepKernel:
    """`run(kept, kid, starts, ends, entering, leaving, *columns, keys, none, key, since, until, *outputs)`.

    The first `kept` rows are added to the records of `keys` before the first edge. `entering` has the rows
    that start in order of their start, `leaving` those that end in order of their end. `none` is an instant
    that no edge has. Outputs are `o<j>` and `w<j>` (validity) for each result. Returns `(rows, err)`.
    """

    run: Callable[..., tuple[int, int]]
    source: str


@functools.lru_cache(maxsize=512)
def sweep_kernel(columns: Columns, layout: Layout, args: tuple[tuple[Node, ...], ...]) -> SweepKernel:
    """Generate a kernel. `args` are the arguments of each part."""
    e = Emitter(columns.schema, columns.loads(), indent=1)
    parts = [PartCode(index, part) for index, part in enumerate(layout.parts)]
    with e.block("for q in range(keys.size):"):
        e.line("r = keys[q]")
        e.line("r.at = none")
        e.line("r.holding = 0")
        for part in parts:
            for name, code in zip(part.names, part.identity()):
                e.line(f"r.{name} = {code}")
    e.line("q = 0")
    with e.block("for i in range(kept):"):
        e.line("r = keys[np.uint64(kid[i])]")
        e.line("r.holding += 1")
        _add(e, parts, args)
    # After the last edge, each key is visited once more: its last moment is settled, too.
    with e.block("while a < entering.size or b < leaving.size or q < keys.size:"):
        e.line("adding = False")
        e.line("edge = True")
        e.line("more = a < entering.size")
        with e.block("if more and (b >= leaving.size or starts[entering[a]] <= ends[leaving[b]]):"):
            e.line("adding = True")
            e.line("i = np.uint64(entering[a])")
            e.line("t = starts[i]")
            e.line("k = np.uint64(kid[i])")
            e.line("a += 1")
        with e.block("elif b < leaving.size:"):
            e.line("i = np.uint64(leaving[b])")
            e.line("t = ends[i]")
            e.line("k = np.uint64(kid[i])")
            e.line("b += 1")
        with e.block("else:"):
            e.line("edge = False")
            e.line("i = np.uint64(0)")
            e.line("t = none")
            e.line("k = np.uint64(q)")
            e.line("q += 1")
        e.line("r = keys[k]")
        with e.block("if r.at != t:"):
            with e.block("if r.at != none:"):
                _settle(e, layout)
            e.line("r.at = t")
        with e.block("if adding:"):
            e.line("r.holding += 1")
            _add(e, parts, args)
        with e.block("elif edge:"):
            e.line("r.holding -= 1")
            _take_out(e, parts, args)
    outputs = [name for j in range(len(layout.results)) for name in (f"o{j}", f"w{j}")]
    parameters = ", ".join(
        ["kept", "kid", "starts", "ends", "entering", "leaving", *columns.parameters, "keys", "none",
         "key", "since", "until", *outputs]
    )  # fmt: skip
    source = "\n".join(
        [
            "@kernel", f"def run({parameters}):", "    err = 0", "    n = 0", "    a = 0", "    b = 0",
            *e.lines, "    return n, err", "",
        ]
    )  # fmt: skip
    functions = {name: any_kernel(f) for name, f in e.functions.items()}
    return SweepKernel(load(source, **functions).run, source)


def _add(e: Emitter, parts: list[PartCode], args: tuple[tuple[Node, ...], ...]) -> None:
    for part, nodes in zip(parts, args):
        fields = [f"r.{name}" for name in part.names]
        with_arguments(e, nodes, functools.partial(part.take, e, fields))


def _take_out(e: Emitter, parts: list[PartCode], args: tuple[tuple[Node, ...], ...]) -> None:
    for part, nodes in zip(parts, args):

        def step(found: list[Value], part: PartCode = part) -> None:
            fields = [(f"r.{name}", kind) for name, kind in part.part.columns]
            state = [e.assign(code, kind).code for code, kind in fields]
            after = part.inverse(e, state, part.lift(e, found))
            after = [e.assign(code, kind).code for code, (_, kind) in zip(after, fields)]
            for (field, _), code in zip(fields, after):
                e.line(f"{field} = {code}")

        with_arguments(e, nodes, step)


def _settle(e: Emitter, layout: Layout) -> None:
    """Emit code that gives the value of a key from its last moment on, and the row that this completes."""
    e.line("same = False")
    for j, result in enumerate(layout.results):
        e.line(f"x{j} = {_zero(result.type)}")
        e.line(f"u{j} = False")
    with e.block("if r.holding > 0:"):
        for j, result in enumerate(layout.results):
            _value(e, j, result, layout)
        e.line("same = True")
        for j, result in enumerate(layout.results):
            equal = f"equal_float(x{j}, r.c{j})" if result.type == FLOAT64 else f"x{j} == r.c{j}"
            e.line(f"same &= u{j} == r.d{j} and (not u{j} or {equal})")
    with e.block("if r.open == 1 and not same:"):
        e.line("key[n] = k")
        e.line("since[n] = r.since")
        e.line("until[n] = r.at")
        for j in range(len(layout.results)):
            e.line(f"o{j}[n] = r.c{j}")
            e.line(f"w{j}[n] = r.d{j}")
        e.line("n += 1")
        e.line("r.open = 0")
    with e.block("if r.open == 0 and r.holding > 0:"):
        e.line("r.open = 1")
        e.line("r.since = r.at")
        for j in range(len(layout.results)):
            e.line(f"r.c{j} = x{j}")
            e.line(f"r.d{j} = u{j}")


def _value(e: Emitter, j: int, result: Result, layout: Layout) -> None:
    """Emit the value of a result, `x<j>`, and whether it is not null, `u<j>`."""
    own = {p: [f"r.{name}" for name in layout.parts[p].columns.names] for p in result.parts}
    present = "True"
    if result.present is not None:
        present = f"r.{layout.parts[result.present].columns.names[0]} != 0"
    with e.block(f"if {present}:"):
        states = {
            p: [e.assign(code, kind).code for code, (_, kind) in zip(fields, layout.parts[p].columns)]
            for p, fields in own.items()
        }
        value = lower(e, result, layout, states)
        e.line(f"u{j} = {'True' if value.null is None else f'not {value.null}'}")
        with e.block(f"if u{j}:"):
            e.line(f"x{j} = {value.code}")


def _zero(kind: DataType) -> str:
    return {"f8": "0.0", "?": "False"}.get(numpy_type(kind), "0")
