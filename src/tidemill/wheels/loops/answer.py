"""The kernel that answers ranges of slots: it plans, combines and lowers."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tidemill.aggregates.layout import Layout
from tidemill.codegen.algebra import PartCode
from tidemill.codegen.expressions import Emitter
from tidemill.codegen.modules import load
from tidemill.core.schema import Schema
from tidemill.core.time import FARTHEST
from tidemill.jit.addresses import ADDRESSES, PLACES, by_address
from tidemill.jit.kernel import any_kernel
from tidemill.wheels.loops.range_plan import (
    ADD,
    ADD_PREFIX,
    BLOCK,
    FIRST,
    HEAD,
    KEYS,
    LOOK,
    MARKED,
    PLAN_ROOM,
    RING,
    ROOM,
    SUBTRACT,
    VERSION,
)  # fmt: skip
from tidemill.wheels.loops.slots import (
    ABSENT,
    BIT_PACKING,
    BITS,
    PLAN,
    SPARSE,
    SlotLayout,
    adds_floats,
    adds_ints,
    apply,
    cells_allocated,
    columns_at,
    combine_into,
    lowered,
    nothing_yet,
)  # fmt: skip


@dataclass(frozen=True)
class AnswerKernel:
    """Plans ranges of finest slots, combines the segments of the plan, and lowers.

    `run(starts, ends, kid, shared, rows, *choice, *arrays, *outputs) ->
    (bad, err)` answers a query for each of `kid`; if `shared`, all of them over the first range. `bad` is
    the first query whose slots are not held, or -1. An unknown key has no cells. Outputs are `w<j>`
    (validity) and `o<j>` for each result. `rows` receives whether there was any row, unless it is empty. The
    `choice` has the arguments of `plan`: the kinds allowed, the threshold, the cost of a slot.

    `one_at(frame, start, end, k)` answers one range, in ticks, as `(status, valid, value, valid, value, …)`.
    The status is 0, error bits, or one of the constants below. The frame has the arrays, then
    the choice, then the ticks of a slot.

    The arrays of a store are those of its storage: see `arrays_read`.
    """

    run: Callable[..., tuple[int, int]]
    one_at: Callable[..., tuple[Any, ...]]
    source: str


class Storage(enum.Enum):
    """How a store keeps closed slots."""

    DENSE = "dense"
    """A cell for each key of each slot."""
    PREFIX = "prefix"
    """The same, with running sums."""
    COMPRESSED = "compressed"
    """The same, with older slots in blocks: see `loops.bit_packing`."""
    SPARSE = "sparse"
    """A cell for each slot in which a key had rows: see `loops.sparse_cells`."""


def arrays_read(slots: SlotLayout, storage: Storage) -> list[str]:
    """The arrays that answers read, in their order."""
    more = {Storage.COMPRESSED: ["directory", "bases"], Storage.SPARSE: ["spans", "groups"]}
    kinds = "f" if storage is Storage.SPARSE else "fx"
    columns = [f"{x}_{n}" for x in kinds for n, _ in slots.stored]
    return ["head", "totals", "marks", *more.get(storage, []), *columns]


def reading(storage: Storage) -> list[str]:
    """The imports and functions of kernels that read slots."""
    more = {Storage.COMPRESSED: [BIT_PACKING], Storage.SPARSE: [SPARSE]}
    return [INTRINSICS, ADJACENT, *more.get(storage, []), BITS]


def size_of(slots: SlotLayout, storage: Storage) -> list[str]:
    """Code that sets `size`, the number of allocated cells of a sparse store."""
    return [f"    size = {cells_allocated(slots)}"] if storage is Storage.SPARSE else []


CHOICE = ("allowed", "threshold", "slot_cost")
"""The arguments of `plan` besides the head and the range."""
INTRINSICS = "from tidemill.jit.intrinsics import *"
ADJACENT = "from tidemill.wheels.loops.adjacent_sums import *"
NOT_THERE, OFF_GRID, CHANGED = -1, -2, -3
"""The status of a range that is not held; of bounds off the grid of slots or in the wrong order; of an
answer during which slots closed or arrays were replaced."""


@functools.lru_cache(maxsize=256)
def answer_kernel(layout: Layout, storage: Storage) -> AnswerKernel:
    slots = SlotLayout(layout)
    prefix = storage is Storage.PREFIX
    outputs = [f"{x}{j}" for j in range(len(layout.results)) for x in ("w", "o")]
    stored = arrays_read(slots, storage)
    begin = [
        "    err = 0", f"    room = head[{ROOM}]", f"    marked = head[{MARKED}] != 0",
        f"    finest = {HEAD}", f"    first = head[{FIRST}]", *size_of(slots, storage),
    ]  # fmt: skip
    room = f"segments = np.empty(({PLAN_ROOM}, 4), np.int64)"
    planned = f"kind, b, _ = plan(head, {{}}, {{}}, {', '.join(CHOICE)}, segments)"

    many = Emitter(Schema(()), {}, indent=1)
    many.line("b = 0")
    many.line(room)
    many.line("direct = not marked and not shared")
    with many.block("for i in range(kid.size):"):
        many.line("k = kid[i]")
        if prefix:
            with _direct(many, slots, "direct", "starts[i]", "ends[i]"):
                _lowered(many, slots, _difference_alone(many, slots), "[i]")
                many.line("if rows.size != 0:")
                many.line("    rows[i] = True")
                many.line("continue")
        other = "starts[i] != starts[i - 1] or ends[i] != ends[i - 1]"
        with many.block(f"if i == 0 or (not shared and ({other})):"):
            many.line(planned.format("starts[i]", "ends[i]"))
            many.line("if kind == NOT_HELD:")
            many.line("    return i, err")
        many.line(f"m = b if 0 <= k < head[{KEYS}] else 0")
        _answer(many, slots, storage, "[i]", any_row="rows.size == 0")
        many.line("if rows.size != 0:")
        many.line("    rows[i] = p0")
    parameters = ["starts", "ends", "kid", "shared", "rows", *CHOICE, *stored, *outputs]
    lines = ["@kernel", f"def run({', '.join(parameters)}):", *begin, *many.lines, "    return -1, err"]

    one = Emitter(Schema(()), {}, indent=1)
    for place, name in enumerate((*CHOICE, "grain")):
        one.line(f"{name} = frame[{PLACES * len(stored) + place}]")
    one.line(f"version_at = frame[0] + {8 * VERSION}")
    one.line("version = in_order(version_at)")
    one.line("lo = start // grain")
    one.line("hi = end // grain")
    on_grid = "lo * grain == start and hi * grain == end"
    one.line(f"status = 0 if {on_grid} and {-FARTHEST} <= start <= end <= {FARTHEST} else {OFF_GRID}")
    for j, result in enumerate(layout.results):
        nothing_yet(one, j, result, "")
    one.line("start = lo")
    one.line("end = hi")
    one.line("planned = status == 0")
    if prefix:
        with _direct(one, slots, "planned and not marked", "start", "end"):
            _lowered(one, slots, _difference_alone(one, slots), "")
            one.line("planned = False")
    with one.block("if planned:"):
        one.line(room)
        one.line(planned.format("start", "end"))
        one.line("if kind == NOT_HELD:")
        one.line(f"    status = {NOT_THERE}")
        one.line(f"m = b if 0 <= k < head[{KEYS}] else 0")
        _answer(one, slots, storage, "", any_row="True")
    one.line("if version & 1 or in_order(version_at) != version:")
    one.line(f"    status = {CHANGED}")
    lines += ["", *by_address("one_at", ["start", "end", "k", *stored], slots.arrays()), *begin, *one.lines]
    lines += [f"    return (status if status != 0 else err, {', '.join(outputs)})", ""]

    source = "\n".join([PLAN, ADDRESSES, *reading(storage), *lines])
    compiled = {name: any_kernel(f) for name, f in (many.functions | one.functions).items()}
    module = load(source, **compiled)
    return AnswerKernel(module.run, module.one_at, source)


@contextmanager
def _direct(e: Emitter, slots: SlotLayout, condition: str, start: str, end: str) -> Iterator[None]:
    """Skip planning, which takes most of the time, if the finest ring holds both prefix sums of a range."""
    with e.block(f"if {condition}:"):
        e.line(f"lo = max({start}, first)")
        e.line(f"hi = min({end}, head[finest + END])")
        e.line("seen = lo - np.int64(lo != first)")
        with e.block(f"if lo < hi and seen >= head[finest + LOW] and 0 <= k < head[{KEYS}]:"):
            yield


def _difference_alone(e: Emitter, slots: SlotLayout) -> dict[int, list[str]]:
    """The state of `[lo, hi)` of the finest ring, in which every cell has every mark."""
    parts = slots.stored_codes()
    states = _nothing(e, slots, parts)
    e.line("h = finest")
    _difference(e, parts, states)
    for m in range(len(slots.marks)):
        e.line(f"p{m} = True")
    return states


def _answer(e: Emitter, slots: SlotLayout, storage: Storage, at: str, any_row: str) -> None:
    _lowered(e, slots, combined(e, slots, storage, any_row), at)


def _lowered(e: Emitter, slots: SlotLayout, states: dict[int, list[str]], at: str) -> None:
    for part, mark in slots.mark_of.items():
        states[part] = [f"np.int64(p{mark})"]
    for j, result in enumerate(slots.layout.results):
        lowered(e, j, result, slots.layout, states, at)


def combined(e: Emitter, slots: SlotLayout, storage: Storage, any_row: str) -> dict[int, list[str]]:
    """Combine all segments into one state, and set `p<m>`: whether any cell has mark `m`.

    The mark of rows starts as `any_row` if no result needs it, which saves the search. Without marks, every
    cell counts as marked.
    """
    parts = slots.stored_codes()
    states = _nothing(e, slots, parts, any_row)
    with e.block("if not marked:"):
        for m in range(len(slots.marks)):
            e.line(f"p{m} = m > 0")
    with e.block("for j in range(m):"):
        e.line("ring = segments[j, 0]")
        e.line("lo = segments[j, 1]")
        e.line("hi = segments[j, 2]")
        e.line("what = segments[j, 3]")
        with e.block("if ring < 0:"):
            e.line("t = totals[k]")
            for part in parts:
                combine_into(e, part, states[part.index], [f"t.{n}" for n in part.names])
            with e.block(f"if what == {ADD}:"):
                for m, counter in enumerate(slots.marks):
                    e.line(f"p{m} = p{m} or t.{counter} != 0")
            e.line("continue")
        if storage is Storage.SPARSE:
            _over_groups(e, slots, states)
            return states
        e.line(f"h = {HEAD} + {RING} * ring")
        if storage is Storage.COMPRESSED:
            _over_blocks(e, slots, states)
        e.line("begin = head[h + OFFSET]")
        e.line("end = begin + head[h + CAPACITY]")
        e.line("row = row_of(head, h, lo)")
        with e.block(f"if what == {ADD}:"):
            _over_slots(e, parts, states, subtract=False)
        if slots.subtracts:
            with e.block(f"elif what == {SUBTRACT}:"):
                _over_slots(e, parts, states, subtract=True)
        if storage is Storage.PREFIX:
            with e.block(f"elif what == {ADD_PREFIX}:"):
                _difference(e, parts, states)
        with e.block(f"if marked and (what == {ADD} or what == {LOOK}):"):
            _present(e, slots)
    return states


def _nothing(
    e: Emitter, slots: SlotLayout, parts: list[PartCode], any_row: str = "False"
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
    # First up to the end of the ring's buffer, then from its start.
    e.line("count = min(hi - lo, end - row)")
    e.line("c = np.uint64(row * room + k)")
    with e.block("for half in range(2):"):
        with e.block("if room == 1:"):
            e.line("begin_cell = np.int64(c)")
            e.line("end_cell = begin_cell + count")
            _over_cells(e, parts, states, subtract=subtract)
        with e.block("else:"), e.block("for s in range(count):"):
            for part in parts:
                own = states[part.index]
                how = "inverse" if subtract else "combine"
                apply(e, part, own, own, columns_at(part, "f", "c"), how)
            e.line("c += np.uint64(room)")
        e.line("count = hi - lo - count")
        e.line("c = np.uint64(begin * room + k)")


def _over_cells(
    e: Emitter, parts: list[PartCode], states: dict[int, list[str]], *, subtract: bool
) -> None:
    """Combine the adjacent cells `[begin_cell, end_cell)`, part by part, so that SIMD can be used."""
    how = "inverse" if subtract else "combine"
    for part in parts:
        own = states[part.index]
        if adds_floats(part):
            total = e.fresh()
            e.line(f"{total} = sum_floats(f_{part.names[0]}, begin_cell, end_cell)")
            apply(e, part, own, own, [total], how)
        elif adds_ints(part):
            total, more = e.fresh(), e.fresh()
            e.line(f"{total}, {more} = sum_ints(f_{part.names[0]}, begin_cell, end_cell)")
            if len(own) == 1:
                e.line(f"err |= OVERFLOW * ({more} != 0)")
            apply(e, part, own, own, [total, more][: len(own)], how)
        else:
            with e.block("for c_ in range(np.uint64(begin_cell), np.uint64(end_cell)):"):
                apply(e, part, own, own, columns_at(part, "f", "c_"), how)


def _over_groups(e: Emitter, slots: SlotLayout, states: dict[int, list[str]]) -> None:
    """Combine the cells of a segment in a sparse store: see `loops.sparse_cells`."""
    parts = slots.stored_codes()
    e.line("at = ring * room + k")
    e.line("g = spans[np.uint64(at), GROUPS_AT]")
    e.line("last = g + spans[np.uint64(at), GROUP_COUNT]")
    # Slots may close meanwhile: the answer is then repeated, but reads must stay in bounds.
    e.line("if g < 0 or g >= last or last > groups.shape[0]:")
    e.line("    continue")
    e.line("g = seek(groups, g, last, lo)")
    with e.block("while g < last and groups[np.uint64(g), START] < hi:"):
        e.line("begin_cell, end_cell = cells_in(groups, g, lo, hi)")
        e.line("g += 1")
        with e.block("while g < last and groups[np.uint64(g), CELL] == end_cell:"):
            e.line("start_of = groups[np.uint64(g), START]")
            e.line("if start_of < lo or start_of + WIDTH > hi:")
            e.line("    break")
            e.line("end_cell += popcount(groups[np.uint64(g), BITS])")
            e.line("g += 1")
        e.line("if begin_cell >= end_cell or begin_cell < 0 or end_cell > size:")
        e.line("    continue")
        with e.block(f"if what == {ADD}:"):
            _over_cells(e, parts, states, subtract=False)
        if slots.subtracts:
            with e.block(f"elif what == {SUBTRACT}:"):
                _over_cells(e, parts, states, subtract=True)
        with e.block(f"if what == {ADD} or what == {LOOK}:"):
            e.line("p0 = True")
            missing = " or ".join(f"not p{m}" for m in range(1, len(slots.marks)))
            if missing:
                e.line("c = begin_cell")
                with e.block(f"while c < end_cell and ({missing}):"):
                    for m in range(1, len(slots.marks)):
                        e.line(f"p{m} = p{m} or _has(marks, {m}, c)")
                    e.line("c += 1")
                with e.block(f"if what == {LOOK} and not ({missing}):"):
                    e.line("break")
            else:
                e.line(f"if what == {LOOK}:")
                e.line("    break")


def _over_blocks(e: Emitter, slots: SlotLayout, states: dict[int, list[str]]) -> None:
    """Combine the compressed slots of a segment; the others remain as `[lo, hi)`."""
    e.line("plain = max(lo, min(hi, head[h + PLAIN]))")
    e.line(f"size = head[{BLOCK}]")
    with e.block("while lo < plain:"):
        e.line("block = lo // size")
        e.line("at_row = head[h + BLOCK_ROW] + block")
        # Slots may close meanwhile: the answer is then repeated, but this read must stay in bounds.
        e.line("if at_row < 0 or at_row >= directory.shape[0]:")
        e.line("    break")
        e.line("d = directory[at_row]")
        e.line("until = min(plain, (block + 1) * size)")
        e.line("keys = d[THEN]")
        with e.block("if k < keys:"):
            e.line("at = (lo - block * size) * keys + k")
            with e.block(f"if what == {ADD}:"):
                _over_packed(e, slots, states, "combine")
            if slots.subtracts:
                with e.block(f"elif what == {SUBTRACT}:"):
                    _over_packed(e, slots, states, "inverse")
            with e.block(f"if marked and (what == {ADD} or what == {LOOK}):"):
                for m in range(len(slots.marks)):
                    _present_packed(e, len(slots.stored) + m, m)
        e.line("lo = until")


def _frame(e: Emitter, column: int) -> None:
    """Load the address, least value and bit width of a packed column."""
    at = f"COLUMNS + COLUMN * {column}"
    e.line(f"a{column} = address_of(bases, d[{at} + AT])")
    e.line(f"e{column} = d[{at} + LEAST]")
    e.line(f"b{column} = d[{at} + BITS_EACH]")


def _over_packed(e: Emitter, slots: SlotLayout, states: dict[int, list[str]], how: str) -> None:
    numbers = {name: c for c, (name, _) in enumerate(slots.stored)}
    for column in numbers.values():
        _frame(e, column)
    e.line("i_ = at")
    with e.block("for s in range(until - lo):"):
        for part in slots.stored_codes():
            read = []
            for name, kind in part.part.columns:
                if name in part.carries:
                    read.append(ABSENT)
                    continue
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
    """Combine the slots as the difference of two prefix sums."""
    e.line("c = np.uint64(row_of(head, h, hi - 1) * room + k)")
    e.line("o = row_of(head, h, lo - 1) * room + k")
    for part in parts:
        combine_into(e, part, states[part.index], columns_at(part, "x", "c"))
    with e.block("if lo != first // head[h]:"):
        for part in parts:
            own = states[part.index]
            apply(e, part, own, own, columns_at(part, "x", "o"), "inverse")


def _present(e: Emitter, slots: SlotLayout) -> None:
    for m in range(len(slots.marks)):
        e.line("at = row")
        e.line("s = lo")
        with e.block(f"while s < hi and not p{m}:"):
            e.line(f"p{m} = _has(marks, {m}, at * room + k)")
            e.line("s += 1")
            e.line("at += 1")
            e.line("if at == end:")
            e.line("    at = begin")
