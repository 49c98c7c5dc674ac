"""The three loops of a wheel: rows into open slots, open slots into rings, slots into answers.

An *open* slot holds one record for each key, with the whole state of the layout. A *closed* slot is a
row of cells in the columns of the rings, a cell for each key; it holds the state without the counts
that only say whether there was a value at all. Those are *marks*, one bit a cell, and there are none as
long as every cell has every mark.

All integers about the rings are in one array, the *head*: see the constants.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tidemill.aggregates.layout import Layout, Result
from tidemill.codegen.accumulate import with_arguments
from tidemill.codegen.algebra import PartCode, lower, numpy_type
from tidemill.codegen.cache import load
from tidemill.codegen.columns import Columns
from tidemill.codegen.runtime import any_kernel
from tidemill.codegen.scalar import Emitter
from tidemill.core.schema import Schema
from tidemill.core.types import DataType
from tidemill.expr.nodes import Node

# --- the head -------------------------------------------------------------------------------------

KEYS, ROOM, RINGS, FIRST, MARKED, PREFIX, TOTAL, VERSION = range(8)
"""Keys there are, and that there is room for; rings; the first finest slot of all; whether there are
marks; whether there are prefixes; whether the totals are right; how often the wheel has changed."""
HEAD = 16
"""Where the numbers of the first ring begin."""
UNIT, BASE, CAPACITY, OFFSET, LOW, END = range(6)
"""Of a ring: finest slots to a slot; the slot at position 0; slots there is room for; where its cells
begin, in slots; the oldest slot that is held; the slot after the newest."""
RING = 8
"""Numbers to a ring."""

ADD, SUBTRACT, ADD_PREFIX = range(3)
"""What to do with the slots of a segment `(ring, first slot, end slot, what)`. A prefix adds them too, by
the difference of two sums."""
TOTALS = -1
"""In place of a ring: the totals since the beginning."""

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

    def codes(self) -> list[PartCode]:
        return [PartCode(i, p) for i, p in enumerate(self.layout.parts)]

    def stored_codes(self) -> list[PartCode]:
        return [c for c in self.codes() if c.index not in self.layout.presence_only]

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
    """

    run: Callable[..., tuple[int, int, int]]
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
    source = "\n".join(
        [
            "@kernel", f"def run({parameters}):", "    err = 0", "    late = 0", "    m = 0",
            "    mask = ahead.shape[0] - 1", "    reach = ahead.shape[0] * grain", "    i = 0",
            *e.lines, "    return m, late, err", "",
        ]
    )  # fmt: skip
    functions = {name: any_kernel(f) for name, f in e.functions.items()}
    return InsertKernel(load(source, **functions).run, source)


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
    """`run(head, until, ahead, fresh, totals, marks, *columns, *prefixes) -> (how, err)`.

    Closes slots below `until` and rolls them up; `head` says how far it came. `fresh` has the record
    of nothing.
    """

    run: Callable[..., tuple[int, int]]
    source: str


@functools.lru_cache(maxsize=256)
def close_kernel(layout: Layout, prefix: bool) -> CloseKernel:
    slots = Slots(layout)
    names = [name for name, _ in slots.stored]
    e = Emitter(Schema(()), {}, indent=1)
    with e.block("while head[finest + 5] < until:"):
        e.line("s = head[finest + 5]")
        e.line("a = np.uint64(s & mask)")
        _look_for_gaps(e, slots)
        e.line("row = head[finest + 3] + (s - head[finest + 1]) % head[finest + 2]")
        with e.block("for k in range(keys):"):
            e.line("r = ahead[a, k]")
            e.line("c = row * room + k")
            for name in names:
                e.line(f"f_{name}[c] = r.{name}")
            e.line("if _add(totals[k], r) != 0:")
            e.line(f"    head[{TOTAL}] = 0")
            _mark(e, [f"r.{m} != 0" for m in slots.marks])
            e.line("ahead[a, k] = fresh[0]")
        e.line("if err != 0:")
        e.line("    return FAILED, err")
        if prefix:
            _prefix(e, slots, "finest", "s")
        e.line("_closed(head, finest)")
        _roll_up(e, slots, prefix)
    adding, functions = _add_to_totals(slots)
    columns = [f"f_{name}" for name in names] + [f"x_{name}" for name in names]
    parameters = ", ".join(["head", "until", "ahead", "fresh", "totals", "marks", *columns])
    source = "\n".join(
        [
            f"DONE, NEEDS_MARKS, FAILED = {DONE}, {NEEDS_MARKS}, {FAILED}", BITS, *adding, "",
            "@kernel", "def _closed(head, ring):",
            "    head[ring + 5] += 1",
            "    head[ring + 4] = max(head[ring + 4], head[ring + 5] - head[ring + 2])", "", "",
            "@kernel", f"def run({parameters}):", "    err = 0", "    mask = ahead.shape[0] - 1",
            f"    keys = head[{KEYS}]", f"    room = head[{ROOM}]", f"    finest = {HEAD}",
            *e.lines, "    return DONE, err", "",
        ]
    )  # fmt: skip
    compiled = {name: any_kernel(f) for name, f in (functions | e.functions).items()}
    return CloseKernel(load(source, **compiled).run, source)


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
        e.line("if head[finest + 5] % head[ring] != 0:")
        e.line("    break")
        e.line("s = head[ring + 5]")
        e.line("ratio = head[ring] // head[below]")
        e.line("row = head[ring + 3] + (s - head[ring + 1]) % head[ring + 2]")
        with e.block("for k in range(keys):"):
            e.line("c = row * room + k")
            for part in slots.stored_codes():
                for target, code in zip(_columns(part, "f", "c"), part.identity()):
                    e.line(f"{target} = {code}")
            _mark(e, ["False"] * len(slots.marks))
        with e.block("for b in range(max(s * ratio, head[below + 4]), (s + 1) * ratio):"):
            e.line("lower = head[below + 3] + (b - head[below + 1]) % head[below + 2]")
            with e.block("for k in range(keys):"):
                e.line("c = row * room + k")
                e.line("o = lower * room + k")
                for part in slots.stored_codes():
                    combine_into(e, part, _columns(part, "f", "c"), _columns(part, "f", "o"))
                marks = len(slots.marks)
                _mark(e, [f"_has(marks, {m}, c) or _has(marks, {m}, o)" for m in range(marks)])
        e.line("if err != 0:")
        e.line("    return FAILED, err")
        if prefix:
            _prefix(e, slots, "ring", "s")
        e.line("_closed(head, ring)")


def combine_into(e: Emitter, part: PartCode, target: list[str], other: list[str]) -> None:
    kinds = [kind for _, kind in part.part.columns]
    a = [e.assign(code, kind).code for code, kind in zip(target, kinds)]
    b = [e.assign(code, kind).code for code, kind in zip(other, kinds)]
    for name, code in zip(target, part.combine(e, a, b)):
        e.line(f"{name} = {code}")


def _prefix(e: Emitter, slots: Slots, ring: str, s: str) -> None:
    """What all slots up to this one come to."""
    e.line(f"begins = {s} == head[{FIRST}] // head[{ring}]")
    e.line(f"last = head[{ring} + 3] + ({s} - 1 - head[{ring} + 1]) % head[{ring} + 2]")
    with e.block("for k in range(keys):"):
        e.line("c = row * room + k")
        e.line("o = last * room + k")
        for part in slots.stored_codes():
            with e.block("if begins:"):
                for target, source in zip(_columns(part, "x", "c"), _columns(part, "f", "c")):
                    e.line(f"{target} = {source}")
            with e.block("else:"):
                kinds = [kind for _, kind in part.part.columns]
                a = [e.assign(x, t).code for x, t in zip(_columns(part, "x", "o"), kinds)]
                b = [e.assign(x, t).code for x, t in zip(_columns(part, "f", "c"), kinds)]
                for name, code in zip(_columns(part, "x", "c"), part.combine(e, a, b)):
                    e.line(f"{name} = {code}")
    e.line("if err != 0:")
    e.line("    return FAILED, err")


def _add_to_totals(slots: Slots) -> tuple[list[str], dict[str, Any]]:
    """A function of its own: that a total leaves int64 matters only to who asks for it."""
    e = Emitter(Schema(()), {}, indent=1)
    e.line("o.rows += r.rows")
    for part in slots.codes():
        fields = [[f"{side}.{name}" for name in part.names] for side in "or"]
        combine_into(e, part, fields[0], fields[1])
    return ["@kernel", "def _add(o, r):", "    err = 0", *e.lines, "    return err", ""], e.functions


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
    """Combines the segments of plans, and lowers.

    `run(n, segments, begins, kid, head, totals, marks, *columns, *prefixes, *outputs) -> err` answers `n`
    queries: the segments of query `i` are those from `begins[i]` to `begins[i + 1]`, or all of them
    where `begins` is shorter. Outputs are `o<j>` and `w<j>` (validity) for each result.

    `one(segments, count, k, head, totals, marks, *columns, *prefixes)` gives the result of one, as
    `(err, valid, value, valid, value, …)`.
    """

    run: Callable[..., int]
    one: Callable[..., tuple[Any, ...]]
    source: str


@functools.lru_cache(maxsize=256)
def answer_kernel(layout: Layout, prefix: bool) -> AnswerKernel:
    slots = Slots(layout)
    many, functions = _answer(slots, prefix, "    for i in range(n):", "run")
    one, _ = _answer(slots, prefix, "    for i in range(1):", "one")
    source = "\n".join([BITS, *many, *one])
    compiled = {name: any_kernel(f) for name, f in functions.items()}
    module = load(source, **compiled)
    return AnswerKernel(module.run, module.one, source)


def _answer(slots: Slots, prefix: bool, loop: str, name: str) -> tuple[list[str], dict[str, Any]]:
    layout, single = slots.layout, name == "one"
    e = Emitter(Schema(()), {})
    if not single:
        e.line("k = kid[i]")
        e.line("a = begins[i] if begins.size > n else 0")
        e.line("b = begins[i + 1] if begins.size > n else begins[0]")
    states = _combined(e, slots, prefix)
    for part, mark in slots.mark_of.items():
        states[part] = [f"np.int64(p{mark})"]
    for j, result in enumerate(layout.results):
        lowered(e, j, result, layout, states, "" if single else "[i]")
    outputs = [f"{x}{j}" for j in range(len(layout.results)) for x in ("w", "o")]
    own = ["segments", "b", "k"] if single else ["n", "segments", "begins", "kid"]
    columns = [f"{x}_{n}" for x in "fx" for n, _ in slots.stored]
    parameters = [*own, "head", "totals", "marks", *columns, *([] if single else outputs)]
    lines = [
        "@kernel", f"def {name}({', '.join(parameters)}):", "    err = 0",
        f"    room = head[{ROOM}]", f"    marked = head[{MARKED}] != 0",
        *(["    a = 0"] if single else []), loop, *e.lines,
        f"    return (err, {', '.join(outputs)})" if single else "    return err", "", "",
    ]  # fmt: skip
    return lines, e.functions


def _combined(e: Emitter, slots: Slots, prefix: bool) -> dict[int, list[str]]:
    """The state of all segments together, and `p<m>`: whether any cell has a mark."""
    parts = slots.stored_codes()
    states = {p.index: [f"m_{name}" for name in p.names] for p in parts}
    for part in parts:
        for variable, code in zip(states[part.index], part.identity()):
            e.line(f"{variable} = {code}")
    for m in range(len(slots.marks)):
        e.line(f"p{m} = False")
    with e.block("for j in range(a, b):"):
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
        e.line("begin = head[h + 3]")
        e.line("end = begin + head[h + 2]")
        e.line("row = begin + (lo - head[h + 1]) % head[h + 2]")
        if _subtracts(slots):
            if prefix:
                with e.block(f"if segments[j, 3] == {ADD_PREFIX}:"):
                    _difference(e, parts, states)
            with e.block(f"elif segments[j, 3] == {SUBTRACT}:" if prefix else f"if segments[j, 3] == {SUBTRACT}:"):
                _over_slots(e, parts, states, subtract=True)
            with e.block("else:"):
                _over_slots(e, parts, states, subtract=False)
        else:
            _over_slots(e, parts, states, subtract=False)
        with e.block(f"if segments[j, 3] != {SUBTRACT}:"):
            _present(e, slots)
    return states


def _subtracts(slots: Slots) -> bool:
    return all(getattr(p.form, "subtracts", False) for p in slots.stored_codes())


def _over_slots(
    e: Emitter, parts: list[PartCode], states: dict[int, list[str]], *, subtract: bool
) -> None:
    e.line("at = row")
    with e.block("for s in range(lo, hi):"):
        e.line("c = at * room + k")
        for part in parts:
            kinds = [kind for _, kind in part.part.columns]
            own = states[part.index]
            a = [e.assign(code, kind).code for code, kind in zip(own, kinds)]
            b = [e.assign(x, t).code for x, t in zip(_columns(part, "f", "c"), kinds)]
            after = part.inverse(e, a, b) if subtract else part.combine(e, a, b)
            for variable, code in zip(own, after):
                e.line(f"{variable} = {code}")
        e.line("at += 1")
        e.line("if at == end:")
        e.line("    at = begin")


def _difference(e: Emitter, parts: list[PartCode], states: dict[int, list[str]]) -> None:
    """What the slots come to, from what all slots up to the last and up to the first come to."""
    e.line("c = (begin + (hi - 1 - head[h + 1]) % head[h + 2]) * room + k")
    e.line("o = (begin + (lo - 1 - head[h + 1]) % head[h + 2]) * room + k")
    for part in parts:
        combine_into(e, part, states[part.index], _columns(part, "x", "c"))
    with e.block(f"if lo != head[{FIRST}] // head[h]:"):
        for part in parts:
            kinds = [kind for _, kind in part.part.columns]
            own = states[part.index]
            a = [e.assign(code, kind).code for code, kind in zip(own, kinds)]
            b = [e.assign(x, t).code for x, t in zip(_columns(part, "x", "o"), kinds)]
            for variable, code in zip(own, part.inverse(e, a, b)):
                e.line(f"{variable} = {code}")


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
