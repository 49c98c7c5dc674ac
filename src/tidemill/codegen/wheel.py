"""The three loops of a wheel: rows into open slots, open slots into rings, slots into answers.

An *open* slot holds one record for each key, with the whole state of the layout. A *closed* slot is a
row of cells in the columns of the rings, a cell for each key; it holds the state without the counts
that only say whether there was a value at all. Those are *marks*, one bit a cell, and there are none as
long as every cell has every mark.

All integers about the rings are in one array, the *head*: see `wheel_plan`, which also says which slots
answer a range.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tidemill.aggregates.algebra import Form
from tidemill.aggregates.layout import Layout, Result
from tidemill.codegen.accumulate import with_arguments
from tidemill.codegen.addresses import ADDRESSES, by_address, dtype_text
from tidemill.codegen.algebra import PartCode, lower, numpy_type
from tidemill.codegen.cache import load
from tidemill.codegen.columns import Columns
from tidemill.codegen.runtime import any_kernel
from tidemill.codegen.scalar import Emitter
from tidemill.codegen.wheel_plan import (
    ADD_PREFIX,
    BLOCK,
    FIRST,
    HEAD,
    KEYS,
    MARKED,
    PLAN_ROOM,
    PREFIX,
    RING,
    RINGS,
    ROOM,
    SUBTRACT,
    TOTAL,
)  # fmt: skip
from tidemill.core.schema import Schema
from tidemill.core.types import DataType
from tidemill.expr.nodes import Node

DONE, NEEDS_MARKS, FAILED = range(3)
"""How closing ended."""


@dataclass(frozen=True)
class Slots:
    """What open and closed slots hold, for a layout of compiled parts."""

    layout: Layout

    @cached_property
    def stored(self) -> list[tuple[str, DataType]]:
        """The fields of closed slots, one column each."""
        absent = self.layout.presence_only
        parts = [p for i, p in enumerate(self.layout.parts) if i not in absent]
        return [field for part in parts for field in part.columns]

    @cached_property
    def marks(self) -> list[str]:
        """The counters of open slots that become marks. The first counts rows, whatever is in them."""
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
        """The arrays of a store by the names they have in kernels: their types, their dimensions."""
        record = dtype_text(self.open_type)
        found = {
            "head": ("np.dtype('i8')", 1), "ahead": (record, 2), "fresh": (record, 1),
            "totals": (record, 1), "marks": ("np.dtype('u1')", 2),
            "directory": ("np.dtype('i8')", 2), "bases": ("np.dtype('i8')", 1),
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
        """Whether what was combined can be taken out again, to the last bit."""
        forms = [c.form for c in self.stored_codes()]
        return all(isinstance(f, Form) and f.subtracts for f in forms)

    def fresh(self) -> Any:
        """The record of nothing."""
        record = np.zeros(1, dtype=self.open_type)
        for part in self.layout.parts:
            assert part.form is not None
            for (name, _), value in zip(part.columns, part.form.identity):
                record[name] = getattr(value, "value", value)
        return record[0]


# --- rows in --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InsertKernel:
    """`run(n, ts, *columns, kid, begin, grain, inverse, ahead, first, others) -> (early, late, err)`.

    Slots of `grain` ticks are open from number `first` on, which begins at tick `begin`; `inverse` is
    1 / grain. Positions of rows beyond the last open slot go to the front of `others`, those of rows
    before the first one to its back.

    `run_at(frame, n, grain, ts, *columns)` has all arrays by address: the frame has the head, the open slots
    and `others`. There is one where columns have eight bytes a row, no nulls, and there are no keys.
    """

    run: Callable[..., tuple[int, int, int]]
    run_at: Callable[..., tuple[int, int, int]] | None
    source: str


@functools.lru_cache(maxsize=256)
def insert_kernel(
    columns: Columns, layout: Layout, args: tuple[tuple[Node, ...], ...], keyed: bool
) -> InsertKernel:
    """Rows that follow each other in one slot, as rows in order do, work in registers."""
    slots = Slots(layout)
    e = Emitter(columns.schema, columns.loads(), indent=1)
    with e.block("while i < n:"):
        e.line("d = wrap_sub(ts[i], begin)")
        e.line("if ts[i] < begin:")
        e.line("    late += 1")
        e.line("    others[others.size - late] = i")
        e.line("    i += 1")
        e.line("    continue")
        e.line("if d < 0 or d >= reach:")
        e.line("    others[m] = i")
        e.line("    m += 1")
        e.line("    i += 1")
        e.line("    continue")
        # A product is off by one at the most, and much faster than a division.
        e.line("q = np.int64(np.float64(d) * inverse)")
        e.line("if q * grain > d:")
        e.line("    q -= 1")
        e.line("elif d - q * grain >= grain:")
        e.line("    q += 1")
        e.line("low = begin + q * grain")
        e.line("k = np.uint64(kid[i])" if keyed else "k = np.uint64(0)")
        e.line("r = ahead[np.uint64((first + q) & mask), k]")
        for name in slots.open_type.names or ():
            if name != "rows":
                e.line(f"l_{name} = r.{name}")
        e.line("before = i")
        with e.block("while True:"):
            for part, nodes in zip(slots.codes(), args):
                _accumulate(e, part, nodes)
            e.line("i += 1")
            other = "outside(ts[i], low, grain)"
            if keyed:
                other += " or np.uint64(kid[i]) != k"
            e.line(f"if i >= n or {other}:")
            e.line("    break")
        e.line("r.rows += i - before")
        for name in slots.open_type.names or ():
            if name != "rows":
                e.line(f"r.{name} = l_{name}")
    parameters = ", ".join(
        ["n", "ts", *columns.parameters, "kid", "begin", "grain", "inverse", "ahead", "first", "others"]
    )
    body = [
        "    err = 0", "    late = 0", "    m = 0", "    mask = ahead.shape[0] - 1",
        "    reach = ahead.shape[0] * grain", "    i = 0", *e.lines, "    return m, late, err", "",
    ]  # fmt: skip
    lines = ["@kernel", f"def run({parameters}):", *body]
    by_places = not (keyed or columns.nullable or columns.bad)
    by_places = by_places and all(has_eight_bytes(kind) for _, kind in columns.schema)
    if by_places:
        lines = [PLAN, ADDRESSES, *lines, *_rows_at(columns, slots), *body]
    functions = {name: any_kernel(f) for name, f in e.functions.items()}
    source = "\n".join(lines)
    module = load(source, **functions)
    return InsertKernel(module.run, module.run_at if by_places else None, source)


def has_eight_bytes(kind: DataType) -> bool:
    """Whether a column of Arrow has the same eight bytes a row that kernels read."""
    return kind.kind in ("int64", "float64", "timestamp", "duration")


def _rows_at(columns: Columns, slots: Slots) -> list[str]:
    """The first lines of `run_at`."""
    names = ["ts", *columns.parameters]
    kinds = ["i8", *(numpy_type(kind) for _, kind in columns.schema)]
    arrays = {**slots.arrays(), "others": ("np.dtype('u4')", 1)}
    return [
        *(f"{name}_type = np.dtype({kind!r})" for name, kind in zip(names, kinds)),
        *by_address("run_at", ["head", "ahead", "others", "n", "grain", *names], arrays),
        *(f"    {name} = carray(pointer({name}, {name}_type), (n,))" for name in names),
        f"    first = head[{HEAD} + END]", "    begin = first * grain", "    inverse = 1.0 / grain",
    ]  # fmt: skip


def _accumulate(e: Emitter, part: PartCode, nodes: tuple[Node, ...]) -> None:
    def step(values: list[Any]) -> None:
        before = [f"l_{name}" for name in part.names]
        after = part.accumulate(e, before, values)
        after = [e.assign(code, kind).code for code, (_, kind) in zip(after, part.part.columns)]
        for name, code in zip(before, after):
            e.line(f"{name} = {code}")

    with_arguments(e, nodes, step)


# --- slots close ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class CloseKernel:
    """`run_at(frame, until) -> (how, err)`.

    Closes slots below `until` and rolls them up; `head` says how far it came. `fresh` has the record
    of nothing. The frame has `head`, `ahead`, `fresh`, `totals`, `marks`, columns and prefixes.
    """

    run_at: Callable[..., tuple[int, int]]
    source: str


@functools.lru_cache(maxsize=256)
def close_kernel(layout: Layout, prefix: bool) -> CloseKernel:
    slots = Slots(layout)
    names = [name for name, _ in slots.stored]
    e = Emitter(Schema(()), {}, indent=1)
    with e.block("while head[finest + END] < until:"):
        e.line("s = head[finest + END]")
        e.line("a = np.uint64(s & mask)")
        _look_for_gaps(e, slots)
        e.line("row = row_of(head, finest, s)")
        with e.block("for k in range(keys):"):
            e.line("r = ahead[a, k]")
            e.line("c = row * room + k")
            for name in names:
                e.line(f"f_{name}[c] = r.{name}")
            e.line("if _add(totals[k], r) != 0:")
            e.line(f"    head[{TOTAL}] = 0")
            _mark(e, [f"r.{m} != 0" for m in slots.marks])
            e.line("ahead[a, k] = fresh[0]")
        _published(e, slots, "finest", prefix)
        _roll_up(e, slots, prefix)
    adding, functions = _add_to_totals(slots)
    columns = [f"f_{name}" for name in names] + [f"x_{name}" for name in names]
    parameters = ["head", "until", "ahead", "fresh", "totals", "marks", *columns]
    source = "\n".join(
        [
            PLAN, ADDRESSES, f"DONE, NEEDS_MARKS, FAILED = {DONE}, {NEEDS_MARKS}, {FAILED}", BITS,
            *adding, "",
            "@kernel", "def _closed(head, ring):",
            "    head[ring + END] += 1",
            "    head[ring + HOT] = max(head[ring + HOT], head[ring + END] - head[ring + CAPACITY])",
            "    if head[ring + COLD] == NEVER:", "        head[ring + LOW] = head[ring + HOT]", "", "",
            *by_address("run_at", parameters, slots.arrays()), "    err = 0",
            "    mask = ahead.shape[0] - 1", f"    keys = head[{KEYS}]", f"    room = head[{ROOM}]",
            f"    finest = {HEAD}",
            *e.lines, "    return DONE, err", "",
        ]
    )  # fmt: skip
    compiled = {name: any_kernel(f) for name, f in (functions | e.functions).items()}
    return CloseKernel(load(source, **compiled).run_at, source)


def _look_for_gaps(e: Emitter, slots: Slots) -> None:
    """As long as there are no marks, a cell that lacks one stops the loop before anything is done."""
    with e.block(f"if head[{MARKED}] == 0:"):
        with e.block("for k in range(keys):"):
            lacks = " or ".join(f"ahead[a, k].{mark} == 0" for mark in slots.marks)
            e.line(f"if {lacks}:")
            e.line("    return NEEDS_MARKS, err")


def _mark(e: Emitter, present: list[str]) -> None:
    with e.block(f"if head[{MARKED}] != 0:"):
        for m, condition in enumerate(present):
            e.line(f"_put(marks, {m}, c, {condition})")


def _columns(part: PartCode, array: str, at: str) -> list[str]:
    return [f"{array}_{name}[{at}]" for name in part.names]


def _roll_up(e: Emitter, slots: Slots, prefix: bool) -> None:
    """Combine the slots below each slot of a coarser ring that is now complete."""
    with e.block(f"for g in range(1, head[{RINGS}]):"):
        e.line(f"ring = {HEAD} + {RING} * g")
        e.line(f"below = ring - {RING}")
        e.line("if head[finest + END] % head[ring] != 0:")
        e.line("    break")
        e.line("s = head[ring + END]")
        e.line("ratio = head[ring] // head[below]")
        e.line("row = row_of(head, ring, s)")
        with e.block("for k in range(keys):"):
            e.line("c = row * room + k")
            for part in slots.stored_codes():
                for target, code in zip(_columns(part, "f", "c"), part.identity()):
                    e.line(f"{target} = {code}")
            _mark(e, ["False"] * len(slots.marks))
        with e.block("for b in range(max(s * ratio, head[below + LOW]), (s + 1) * ratio):"):
            e.line("lower = row_of(head, below, b)")
            with e.block("for k in range(keys):"):
                e.line("c = row * room + k")
                e.line("o = lower * room + k")
                for part in slots.stored_codes():
                    combine_into(e, part, _columns(part, "f", "c"), _columns(part, "f", "o"))
                marks = len(slots.marks)
                _mark(e, [f"_has(marks, {m}, c) or _has(marks, {m}, o)" for m in range(marks)])
        _published(e, slots, "ring", prefix)


def _published(e: Emitter, slots: Slots, ring: str, prefix: bool) -> None:
    """Slot `s` of a ring is complete, unless something failed."""
    if prefix:
        _prefix(e, slots, ring)
    e.line("if err != 0:")
    e.line("    return FAILED, err")
    e.line(f"_closed(head, {ring})")


def apply(
    e: Emitter, part: PartCode, target: list[str], a: list[str], b: list[str], how: str = "combine"
) -> None:
    """`target = a ⊕ b`, or `a ⊖ b` where it is told `inverse`; the target may be one of them."""
    kinds = [kind for _, kind in part.part.columns]
    one = [e.assign(code, kind).code for code, kind in zip(a, kinds)]
    other = [e.assign(code, kind).code for code, kind in zip(b, kinds)]
    function = part.inverse if how == "inverse" else part.combine
    for name, code in zip(target, function(e, one, other)):
        e.line(f"{name} = {code}")


def combine_into(e: Emitter, part: PartCode, target: list[str], other: list[str]) -> None:
    apply(e, part, target, target, other)


def _prefix(e: Emitter, slots: Slots, ring: str) -> None:
    """What all slots up to `s` come to."""
    e.line(f"begins = s == head[{FIRST}] // head[{ring}]")
    e.line(f"last = row_of(head, {ring}, s - 1)")
    with e.block("for k in range(keys):"):
        e.line("c = row * room + k")
        e.line("o = last * room + k")
        for part in slots.stored_codes():
            with e.block("if begins:"):
                for target, source in zip(_columns(part, "x", "c"), _columns(part, "f", "c")):
                    e.line(f"{target} = {source}")
            with e.block("else:"):
                before, own = _columns(part, "x", "o"), _columns(part, "f", "c")
                apply(e, part, _columns(part, "x", "c"), before, own)


def _add_to_totals(slots: Slots) -> tuple[list[str], dict[str, Any]]:
    """A function of its own: that a total leaves int64 matters only to who asks for it."""
    e = Emitter(Schema(()), {}, indent=1)
    e.line("o.rows += r.rows")
    for part in slots.codes():
        fields = [[f"{side}.{name}" for name in part.names] for side in "or"]
        combine_into(e, part, fields[0], fields[1])
    return ["@kernel", "def _add(o, r):", "    err = 0", *e.lines, "    return err", ""], e.functions


PLAN = "from tidemill.codegen.wheel_plan import *"
COLD_BLOCKS = "from tidemill.codegen.wheel_cold import *"
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


# --- answers --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AnswerKernel:
    """Plans ranges of finest slots, combines the segments of the plan, and lowers.

    `run(starts, ends, kid, shared, rows, subtracts, threshold, head, totals, marks, *columns, *prefixes,
    *outputs) -> (bad, err)` answers a query for each of `kid`, all over the first range where it is
    `shared`. `bad` is the first one that is not held, or -1. A key that there is not has no cells. Outputs
    are `w<j>` (validity) and `o<j>` for each result. `rows` gets whether there was any row, unless it is
    empty; where there are marks, that needs a plan that does not subtract.

    `one_at(frame, start, end, k, subtracts, threshold)` answers one, as `(kind, err, valid, value, valid,
    value, …)`. The frame has `head`, `totals`, `marks`, columns and prefixes.

    Where rings are compressed, `directory, bases` follow the marks: see `wheel_cold`.
    """

    run: Callable[..., tuple[int, int]]
    one_at: Callable[..., tuple[Any, ...]]
    source: str


@functools.lru_cache(maxsize=256)
def answer_kernel(layout: Layout, prefix: bool, compressed: bool = False) -> AnswerKernel:
    slots = Slots(layout)
    names = [n for n, _ in slots.stored]
    outputs = [f"{x}{j}" for j in range(len(layout.results)) for x in ("w", "o")]
    cold = ["directory", "bases"] if compressed else []
    stored = ["head", "totals", "marks", *cold, *(f"{x}_{n}" for x in "fx" for n in names)]
    begin = [
        "    err = 0", f"    room = head[{ROOM}]", f"    marked = head[{MARKED}] != 0",
        f"    segments = np.empty(({PLAN_ROOM}, 4), np.int64)",
    ]  # fmt: skip
    planned = "kind, b, _ = plan(head, {}, {}, subtracts, threshold, segments)"

    many = Emitter(Schema(()), {}, indent=1)
    many.line("b = 0")
    many.line(f"finest = {HEAD}")
    many.line(f"first = head[{FIRST}]")
    many.line(f"direct = head[{PREFIX}] != 0 and not marked and not shared")
    with many.block("for i in range(kid.size):"):
        many.line("k = kid[i]")
        if prefix:
            _direct(many, slots, "[i]")
        other = "starts[i] != starts[i - 1] or ends[i] != ends[i - 1]"
        with many.block(f"if i == 0 or (not shared and ({other})):"):
            many.line(planned.format("starts[i]", "ends[i]"))
            many.line("if kind == NOT_HELD:")
            many.line("    return i, err")
        many.line(f"m = b if 0 <= k < head[{KEYS}] else 0")
        _answer(many, slots, prefix, compressed, "[i]", any_row="rows.size == 0")
        many.line("if rows.size != 0:")
        many.line("    rows[i] = p0")
    parameters = ["starts", "ends", "kid", "shared", "rows", "subtracts", "threshold", *stored, *outputs]
    lines = ["@kernel", f"def run({', '.join(parameters)}):", *begin, *many.lines, "    return -1, err"]

    one = Emitter(Schema(()), {}, indent=1)
    one.line(planned.format("start", "end"))
    one.line(f"m = b if 0 <= k < head[{KEYS}] else 0")
    _answer(one, slots, prefix, compressed, "", any_row="True")
    parameters = ["start", "end", "k", "subtracts", "threshold", *stored]
    lines += ["", *by_address("one_at", parameters, slots.arrays()), *begin, *one.lines]
    lines += [f"    return (kind, err, {', '.join(outputs)})", ""]

    source = "\n".join([PLAN, ADDRESSES, *([COLD_BLOCKS] if compressed else []), BITS, *lines])
    compiled = {name: any_kernel(f) for name, f in (many.functions | one.functions).items()}
    module = load(source, **compiled)
    return AnswerKernel(module.run, module.one_at, source)


def _direct(e: Emitter, slots: Slots, at: str) -> None:
    """The difference of two sums of the finest ring, where it holds them: without a plan, which would take
    most of the time."""
    with e.block("if direct:"):
        e.line("lo = max(starts[i], first)")
        e.line("hi = min(ends[i], head[finest + END])")
        e.line("seen = lo - np.int64(lo != first)")
        with e.block(f"if lo < hi and seen >= head[finest + LOW] and 0 <= k < head[{KEYS}]:"):
            parts = slots.stored_codes()
            states = _nothing(e, slots, parts)
            e.line("h = finest")
            _difference(e, parts, states)
            for m in range(len(slots.marks)):
                e.line(f"p{m} = True")
            _lowered(e, slots, states, at)
            e.line("if rows.size != 0:")
            e.line("    rows[i] = True")
            e.line("continue")


def _answer(
    e: Emitter, slots: Slots, prefix: bool, compressed: bool, at: str, any_row: str
) -> None:
    _lowered(e, slots, _combined(e, slots, prefix, compressed, any_row), at)


def _lowered(e: Emitter, slots: Slots, states: dict[int, list[str]], at: str) -> None:
    for part, mark in slots.mark_of.items():
        states[part] = [f"np.int64(p{mark})"]
    for j, result in enumerate(slots.layout.results):
        lowered(e, j, result, slots.layout, states, at)


def _combined(
    e: Emitter, slots: Slots, prefix: bool, compressed: bool, any_row: str
) -> dict[int, list[str]]:
    """The state of all segments together, and `p<m>`: whether any cell has a mark.

    The mark of rows begins as `any_row` where no result needs it: nobody looks for what is known.
    """
    parts = slots.stored_codes()
    states = _nothing(e, slots, parts, any_row)
    with e.block("for j in range(m):"):
        e.line("ring = segments[j, 0]")
        e.line("lo = segments[j, 1]")
        e.line("hi = segments[j, 2]")
        with e.block("if ring < 0:"):
            e.line("t = totals[k]")
            for part in parts:
                combine_into(e, part, states[part.index], [f"t.{n}" for n in part.names])
            for m, counter in enumerate(slots.marks):
                e.line(f"p{m} = p{m} or t.{counter} != 0")
            e.line("continue")
        e.line(f"h = {HEAD} + {RING} * ring")
        if compressed:
            _over_blocks(e, slots, states)
        e.line("begin = head[h + OFFSET]")
        e.line("end = begin + head[h + CAPACITY]")
        e.line("row = row_of(head, h, lo)")
        if slots.subtracts:
            if prefix:
                with e.block(f"if segments[j, 3] == {ADD_PREFIX}:"):
                    _difference(e, parts, states)
            with e.block(f"{'elif' if prefix else 'if'} segments[j, 3] == {SUBTRACT}:"):
                _over_slots(e, parts, states, subtract=True)
            with e.block("else:"):
                _over_slots(e, parts, states, subtract=False)
        else:
            _over_slots(e, parts, states, subtract=False)
        with e.block(f"if segments[j, 3] != {SUBTRACT}:"):
            _present(e, slots)
    return states


def _nothing(
    e: Emitter, slots: Slots, parts: list[PartCode], any_row: str = "False"
) -> dict[int, list[str]]:
    states = {p.index: [f"m_{name}" for name in p.names] for p in parts}
    for part in parts:
        for variable, code in zip(states[part.index], part.identity()):
            e.line(f"{variable} = {code}")
    for m in range(len(slots.marks)):
        e.line(f"p{m} = {'False' if m or 0 in slots.mark_of.values() else any_row}")
    return states


def _over_slots(
    e: Emitter, parts: list[PartCode], states: dict[int, list[str]], *, subtract: bool
) -> None:
    # Up to the end of the ring, then from its beginning.
    e.line("count = min(hi - lo, end - row)")
    e.line("c = np.uint64(row * room + k)")
    with e.block("for half in range(2):"):
        with e.block("for s in range(count):"):
            for part in parts:
                own = states[part.index]
                how = "inverse" if subtract else "combine"
                apply(e, part, own, own, _columns(part, "f", "c"), how)
            e.line("c += np.uint64(room)")
        e.line("count = hi - lo - count")
        e.line("c = np.uint64(begin * room + k)")


def _over_blocks(e: Emitter, slots: Slots, states: dict[int, list[str]]) -> None:
    """The slots of a segment that are compressed; the others are left as `[lo, hi)`."""
    e.line("hot = max(lo, min(hi, head[h + HOT]))")
    e.line(f"size = head[{BLOCK}]")
    with e.block("while lo < hot:"):
        e.line("block = lo // size")
        e.line("d = directory[head[h + COLD] + block]")
        e.line("until = min(hot, (block + 1) * size)")
        e.line("keys = d[THEN]")
        with e.block("if k < keys:"):
            e.line("at = (lo - block * size) * keys + k")
            if slots.subtracts:
                with e.block(f"if segments[j, 3] == {SUBTRACT}:"):
                    _over_packed(e, slots, states, "inverse")
                with e.block("else:"):
                    _over_packed(e, slots, states, "combine")
            else:
                _over_packed(e, slots, states, "combine")
            with e.block(f"if segments[j, 3] != {SUBTRACT}:"):
                for m in range(len(slots.marks)):
                    _present_packed(e, len(slots.stored) + m, m)
        e.line("lo = until")


def _frame(e: Emitter, column: int) -> None:
    """Where the values of a column lie, and how."""
    at = f"COLUMNS + COLUMN * {column}"
    e.line(f"a{column} = address_of(bases, d[{at} + AT])")
    e.line(f"e{column} = d[{at} + LEAST]")
    e.line(f"b{column} = d[{at} + BITS_EACH]")


def _over_packed(e: Emitter, slots: Slots, states: dict[int, list[str]], how: str) -> None:
    numbers = {name: c for c, (name, _) in enumerate(slots.stored)}
    for column in numbers.values():
        _frame(e, column)
    e.line("i_ = at")
    with e.block("for s in range(until - lo):"):
        for part in slots.stored_codes():
            read = []
            for name, kind in part.part.columns:
                c = numbers[name]
                value = f"unpacked(a{c}, b{c}, e{c}, i_)"
                shapes = {"float64": f"float_of({value})", "bool": f"{value} != 0"}
                read.append(shapes.get(kind.kind, value))
            own = states[part.index]
            apply(e, part, own, own, read, how)
        e.line("i_ += keys")


def _present_packed(e: Emitter, column: int, mark: int) -> None:
    _frame(e, column)
    with e.block(f"if b{column} == 0:"):
        e.line(f"p{mark} = p{mark} or e{column} != 0")
    with e.block("else:"):
        e.line("i_ = at")
        e.line("s = lo")
        with e.block(f"while s < until and not p{mark}:"):
            e.line(f"p{mark} = unpacked(a{column}, b{column}, e{column}, i_) != 0")
            e.line("i_ += keys")
            e.line("s += 1")


def _difference(e: Emitter, parts: list[PartCode], states: dict[int, list[str]]) -> None:
    """What the slots come to, from what all slots up to the last and up to the first come to."""
    e.line("c = np.uint64(row_of(head, h, hi - 1) * room + k)")
    e.line("o = row_of(head, h, lo - 1) * room + k")
    for part in parts:
        combine_into(e, part, states[part.index], _columns(part, "x", "c"))
    with e.block(f"if lo != head[{FIRST}] // head[h]:"):
        for part in parts:
            own = states[part.index]
            apply(e, part, own, own, _columns(part, "x", "o"), "inverse")


def _present(e: Emitter, slots: Slots) -> None:
    with e.block("if not marked:"):
        for m in range(len(slots.marks)):
            e.line(f"p{m} = p{m} or lo < hi")
    with e.block("else:"):
        for m in range(len(slots.marks)):
            e.line("at = row")
            e.line("s = lo")
            with e.block(f"while s < hi and not p{m}:"):
                e.line(f"p{m} = _has(marks, {m}, at * room + k)")
                e.line("s += 1")
                e.line("at += 1")
                e.line("if at == end:")
                e.line("    at = begin")


def lowered(
    e: Emitter, j: int, result: Result, layout: Layout, states: dict[int, list[str]], at: str
) -> None:
    e.line(f"w{j}{at} = False")
    zero = {"float64": "0.0", "bool": "False"}.get(result.type.kind, "0")
    e.line(f"o{j}{at} = {zero}")
    present = "True" if result.present is None else f"{states[result.present][0]} != 0"
    with e.block(f"if {present}:"):
        value = lower(e, result, layout, states)
        e.line(f"o{j}{at} = {value.code}")
        e.line(f"w{j}{at} = {'True' if value.null is None else f'not {value.null}'}")


# --- two wheels as one ----------------------------------------------------------------------------


@dataclass(frozen=True)
class MergeKernel:
    """`cells(rows, to_rows, key_of, room, to_room, marked, marks, to_marks, *columns, *to_columns) -> err`
    adds the cells of one wheel to those of another, in which key `k` is `key_of[k]`.

    `records(key_of, records, to_records) -> err` does so with records, of open slots or totals.

    `placed(kid, slot, records, ahead) -> err` adds each record to the open slot of a key.

    `prefixes(head, ring, *columns, *prefixes) -> err` makes the running sums of a ring anew.
    """

    cells: Callable[..., int]
    records: Callable[..., int]
    placed: Callable[..., int]
    prefixes: Callable[..., int]
    source: str


@functools.lru_cache(maxsize=256)
def merge_kernel(layout: Layout) -> MergeKernel:
    slots = Slots(layout)
    names = [n for n, _ in slots.stored]
    e = Emitter(Schema(()), {}, indent=1)
    with e.block("for i in range(rows.size):"):
        with e.block("for k in range(key_of.size):"):
            e.line("o = rows[i] * room + k")
            e.line("c = to_rows[i] * to_room + key_of[k]")
            for part in slots.stored_codes():
                combine_into(e, part, _columns(part, "x", "c"), _columns(part, "f", "o"))
            for m in range(len(slots.marks)):
                e.line(f"if not marked or _has(marks, {m}, o):")
                e.line(f"    _put(to_marks, {m}, c, True)")
    columns = ", ".join([f"f_{n}" for n in names] + [f"x_{n}" for n in names])
    own = "rows, to_rows, key_of, room, to_room, marked, marks, to_marks"
    lines = ["@kernel", f"def cells({own}, {columns}):", "    err = 0", *e.lines, "    return err", ""]
    p = Emitter(Schema(()), {}, indent=1)
    with p.block("for s in range(head[ring + LOW], head[ring + END]):"):
        p.line("row = row_of(head, ring, s)")
        _prefix(p, slots, "ring")
    adding, functions = _add_to_totals(slots)
    source = "\n".join(
        [
            PLAN, BITS, *adding, "", *lines, "",
            "@kernel", "def records(key_of, records, to_records):", "    err = 0",
            "    for k in range(key_of.size):", "        err |= _add(to_records[key_of[k]], records[k])",
            "    return err", "", "",
            "@kernel", "def placed(kid, slot, records, ahead):", "    err = 0",
            "    mask = ahead.shape[0] - 1", "    for i in range(kid.size):",
            "        err |= _add(ahead[slot[i] & mask, kid[i]], records[i])",
            "    return err", "", "",
            "@kernel", f"def prefixes(head, ring, {columns}):", "    err = 0",
            f"    keys = head[{KEYS}]", f"    room = head[{ROOM}]", *p.lines, "    return err", "",
        ]
    )  # fmt: skip
    found = functions | e.functions | p.functions
    module = load(source, **{name: any_kernel(f) for name, f in found.items()})
    return MergeKernel(module.cells, module.records, module.placed, module.prefixes, source)
