"""The contents of open and closed slots, and the code fragments that all kernels of a wheel share.

An *open* slot holds one record for each key, with the whole state of the layout. A *closed* slot is a
row of cells in the columns of the rings, a cell for each key; it holds the state without the counts
that only show whether there was a value. These become *marks*, one bit a cell. Marks are not stored as
long as every cell has every mark.

All integers about the rings are in one array, the *head*: see `range_plan`, which also plans ranges.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tidemill.aggregates.algebra import Form
from tidemill.aggregates.basic import COUNT, SUM, WIDE_SUM
from tidemill.aggregates.layout import Layout, Result
from tidemill.codegen.algebra import PartCode, lower, numpy_type
from tidemill.codegen.expressions import Emitter
from tidemill.core.schema import Schema
from tidemill.core.types import DataType
from tidemill.expr.nodes import Call
from tidemill.jit.addresses import dtype_text
from tidemill.wheels.loops.range_plan import FIRST

SLOT, KEYED_SLOT, COMPRESSED_SLOT = 10, 10, 30
"""The cost of combining a part of a slot, see `SlotLayout.slot_cost`."""


@dataclass(frozen=True)
class SlotLayout:
    """The contents of open and closed slots, for a layout of compiled parts."""

    layout: Layout

    @cached_property
    def stored(self) -> list[tuple[str, DataType]]:
        """The fields of closed slots, one column each."""
        return [f for c in self.stored_codes() for f in c.part.columns if f[0] not in c.carries]

    @cached_property
    def carries(self) -> list[str]:
        """Fields of open slots that must be 0 after an insert, because closed slots do not store them."""
        return [name for code in self.codes() for name in code.carries]

    @cached_property
    def marks(self) -> list[str]:
        """The counters of open slots that become marks. The first counts all rows."""
        counted = [self.layout.parts[i] for i in self.layout.presence_only]
        return ["rows", *(p.columns.names[0] for p in counted if p.part.args)]

    @cached_property
    def mark_of(self) -> dict[int, int]:
        """The mark that stands for each part that is not stored."""
        parts = self.layout.parts
        return {
            i: self.marks.index(parts[i].columns.names[0]) if parts[i].part.args else 0
            for i in self.layout.presence_only
        }

    @cached_property
    def open_type(self) -> np.dtype[Any]:
        """The record of a key in an open slot."""
        fields = [("rows", "i8")]
        for part in self.layout.parts:
            fields += [(name, numpy_type(kind)) for name, kind in part.columns]
        return np.dtype(fields, align=True)

    def arrays(self) -> dict[str, tuple[str, int]]:
        """The type and dimensions of a store's arrays, by their names in kernels."""
        record = dtype_text(self.open_type)
        found = {
            "head": ("np.dtype('i8')", 1), "ahead": (record, 2), "fresh": (record, 1),
            "totals": (record, 1), "marks": ("np.dtype('u1')", 2),
            "directory": ("np.dtype('i8')", 2), "bases": ("np.dtype('i8')", 1),
            "touched": ("np.dtype('i8')", 2), "due": ("np.dtype('i8')", 2), "pending": ("np.dtype('i8')", 1),
            "spans": ("np.dtype('i8')", 2), "groups": ("np.dtype('i8')", 2), "free": ("np.dtype('i8')", 1),
        }  # fmt: skip
        for name, kind in self.stored:
            found |= {f"{x}_{name}": (f"np.dtype({numpy_type(kind)!r})", 1) for x in "fx"}
        return found

    def codes(self) -> list[PartCode]:
        return [PartCode(i, p) for i, p in enumerate(self.layout.parts)]

    def stored_codes(self) -> list[PartCode]:
        return [c for c in self.codes() if c.index not in self.layout.presence_only]

    @cached_property
    def subtracts(self) -> bool:
        """Whether every stored part has an exact inverse."""
        forms = [c.form for c in self.stored_codes()]
        return all(isinstance(f, Form) and f.subtracts for f in forms)

    def slot_cost(self, *, keyed: bool, compressed: bool, fast: int) -> int:
        """The planner's cost of combining one slot, in the unit of `SEGMENT_COST`.

        The constants come from `python -m benchmarks wheels --case costs`. The minimum and maximum of
        adjacent ints use SIMD, at the cost `fast`. With keys, each slot of a key is in another cache line;
        compressed slots must be unpacked.
        """
        each = SLOT + KEYED_SLOT * keyed + COMPRESSED_SLOT * compressed
        simd = 0 if keyed or compressed else sum(map(_several_at_a_time, self.stored_codes()))
        return max(fast, each * (len(self.stored_codes()) - simd) + fast * simd)

    def fresh(self) -> Any:
        """The record of an empty slot: the identity of every part."""
        record = np.zeros(1, dtype=self.open_type)
        for part in self.layout.parts:
            assert part.form is not None
            for (name, _), value in zip(part.columns, part.form.identity):
                record[name] = getattr(value, "value", value)
        return record[0]


def adds_floats(code: PartCode) -> bool:
    """Whether a part is a sum of floats, which are added in any order."""
    return code.algebra is SUM and code.form.fields[0].kind == "float64"


def adds_ints(code: PartCode) -> bool:
    """Whether a part is a sum of ints, or a count."""
    return code.algebra in (SUM, COUNT, WIDE_SUM) and not adds_floats(code)


def _several_at_a_time(code: PartCode) -> bool:
    """Whether the compiler can combine several partials in one SIMD step."""
    form = code.form
    if adds_floats(code) or adds_ints(code):
        return True
    if not isinstance(form, Form) or form.fields[0].kind == "float64":
        return False
    return all(isinstance(n, Call) and n.function in ("least", "greatest") for n in form.combine)


PLAN = "from tidemill.wheels.loops.range_plan import *"
BIT_PACKING = "from tidemill.wheels.loops.bit_packing import *"
SPARSE = "from tidemill.wheels.loops.sparse_cells import *"
BITS = """
@kernel
def _put(marks, m, cell, value):
    bit = np.uint8(1 << (cell & 7))
    if value:
        marks[m, cell >> 3] |= bit
    else:
        marks[m, cell >> 3] &= ~bit


@kernel
def _has(marks, m, cell):
    return (marks[m, cell >> 3] >> (cell & 7)) & 1 != 0

"""


ABSENT = "0"
"""The code in place of a carry column, which closed slots do not store."""


def cells_allocated(slots: SlotLayout) -> str:
    """The number of allocated cells of a sparse store."""
    if slots.stored:
        return f"f_{slots.stored[0][0]}.size"
    return "8 * marks.shape[1]"


def columns_at(part: PartCode, array: str, at: str) -> list[str]:
    return [ABSENT if n in part.carries else f"{array}_{n}[{at}]" for n in part.names]


def put(e: Emitter, target: str, code: str) -> None:
    """Write a field; for a field that is not stored, set OVERFLOW unless the value is 0."""
    e.line(f"err |= OVERFLOW * ({code} != 0)" if target == ABSENT else f"{target} = {code}")


def apply(
    e: Emitter, part: PartCode, target: list[str], a: list[str], b: list[str], how: str = "combine"
) -> None:
    """`target = a ⊕ b`, or `a ⊖ b` if `how` is "inverse"; the target may be `a` or `b`."""
    kinds = [kind for _, kind in part.part.columns]
    one = [e.assign(code, kind).code for code, kind in zip(a, kinds)]
    other = [e.assign(code, kind).code for code, kind in zip(b, kinds)]
    function = part.inverse if how == "inverse" else part.combine
    for name, code in zip(target, function(e, one, other)):
        put(e, name, code)


def combine_into(e: Emitter, part: PartCode, target: list[str], other: list[str]) -> None:
    apply(e, part, target, target, other)


def prefix_sums(e: Emitter, slots: SlotLayout, ring: str) -> None:
    """Write the prefix sum of all slots up to `s`."""
    e.line(f"begins = s == head[{FIRST}] // head[{ring}]")
    e.line(f"last = row_of(head, {ring}, s - 1)")
    with e.block("for k in range(keys):"):
        e.line("c = row * room + k")
        e.line("o = last * room + k")
        for part in slots.stored_codes():
            with e.block("if begins:"):
                for target, source in zip(columns_at(part, "x", "c"), columns_at(part, "f", "c")):
                    put(e, target, source)
            with e.block("else:"):
                before, own = columns_at(part, "x", "o"), columns_at(part, "f", "c")
                apply(e, part, columns_at(part, "x", "c"), before, own)


def adding_records(slots: SlotLayout) -> tuple[list[str], dict[str, Any]]:
    """A separate function with its own `err`: a total that overflows must not stop slots from closing."""
    e = Emitter(Schema(()), {}, indent=1)
    e.line("o.rows += r.rows")
    for part in slots.codes():
        fields = [[f"{side}.{name}" for name in part.names] for side in "or"]
        combine_into(e, part, fields[0], fields[1])
    return ["@kernel", "def _add(o, r):", "    err = 0", *e.lines, "    return err", ""], e.functions


def lowered(
    e: Emitter, j: int, result: Result, layout: Layout, states: dict[int, list[str]], at: str
) -> None:
    nothing_yet(e, j, result, at)
    present = "True" if result.present is None else f"{states[result.present][0]} != 0"
    with e.block(f"if {present}:"):
        value = lower(e, result, layout, states)
        e.line(f"o{j}{at} = {value.code}")
        e.line(f"w{j}{at} = {'True' if value.null is None else f'not {value.null}'}")


def nothing_yet(e: Emitter, j: int, result: Result, at: str) -> None:
    """Initialize a result as null."""
    e.line(f"w{j}{at} = False")
    zero = {"float64": "0.0", "bool": "False"}.get(result.type.kind, "0")
    e.line(f"o{j}{at} = {zero}")
