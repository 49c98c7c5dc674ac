"""The kernel that closes open slots of a sparse store and rolls finer slots up into coarser rings.

Only keys with rows in a slot are visited, and slots without rows are passed over in one step. A coarser slot
is made when it is complete, from the cells of the keys that are *due*: those with cells in it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.aggregates.layout import Layout
from tidemill.codegen.expressions import Emitter
from tidemill.codegen.modules import load
from tidemill.core.schema import Schema
from tidemill.jit.addresses import ADDRESSES, by_address
from tidemill.jit.kernel import any_kernel
from tidemill.wheels.loops.close import DONE, FAILED
from tidemill.wheels.loops.range_plan import HEAD, KEYS, RING, RINGS, ROOM, TOTAL
from tidemill.wheels.loops.slots import (
    BITS,
    PLAN,
    SPARSE,
    SlotLayout,
    adding_records,
    cells_allocated,
    columns_at,
    combine_into,
    put,
)  # fmt: skip

NEEDS_ROOM = 3
"""The outcome of closing if there are not enough cells or groups: allocate more, and call it again."""
NOBODY = -(1 << 62)
"""In place of the coarser slot that keys are due in: none is."""


@dataclass(frozen=True)
class SparseCloseKernel:
    """`run_at(frame, until) -> (how, err)` closes the open slots below `until`, and passes over all others.

    `cells_at(frame, first) -> (how, err)` closes slots whose records are not in open slots: record `i` is
    that of slot `slot_of[i]` and key `key_of[i]`, in this order. The last slot stays open.

    After `NEEDS_ROOM`, call it again; `cells_at` returns the record to begin with in place of an error. The
    frame of `run_at` has `head`, `ahead`, `fresh`, `totals`, `marks`, `touched`, `due`, `pending`, `spans`,
    `groups`, `free` and the columns; that of `cells_at` has `slot_of`, `key_of` and `ahead` first. `touched`
    has a bit for each key with rows in an open slot, `due` for each key with cells in the slot `pending` of
    a ring.
    """

    run_at: Callable[..., tuple[int, int]]
    cells_at: Callable[..., tuple[int, int]]
    source: str


@functools.lru_cache(maxsize=256)
def sparse_close_kernel(layout: Layout, keyed: bool) -> SparseCloseKernel:
    slots = SlotLayout(layout)
    names = [f"f_{name}" for name, _ in slots.stored]
    own = ["head", "totals", "marks", "due", "pending", "spans", "groups", "free", *names]
    adding, functions = adding_records(slots)
    cell, row, rolling = (Emitter(Schema(()), {}, indent=1) for _ in range(3))
    _close_cell(cell, slots)
    _close_row(row, slots, keyed, own)
    _roll_up(rolling, slots, own)
    kinds = slots.arrays() | dict.fromkeys(("slot_of", "key_of"), ("np.dtype('i8')", 1))
    shared = ", ".join(own)
    source = "\n".join(
        [
            PLAN, ADDRESSES, SPARSE,
            f"DONE, FAILED, NEEDS_ROOM, NOBODY = {DONE}, {FAILED}, {NEEDS_ROOM}, {NOBODY}", BITS, *adding, "",
            "@kernel", f"def _roll_up(ring, number, {shared}):", "    err = 0", *rolling.lines,
            "    pending[number] = NOBODY", "    return DONE, err", "", "",
            "@kernel", f"def _pass(until, {shared}):",
            *_passing(shared), "    return DONE, 0", "", "",
            "@kernel", f"def _close_cell(k, s, r, {shared}):", *cell.lines, "    return True", "", "",
            "@kernel", f"def _close_row(a, s, ahead, fresh, touched, {shared}):", "    err = 0", *row.lines,
            f"    return _pass(s + 1, {shared})", "", "",
            *by_address("run_at", ["until", "ahead", "fresh", "touched", *own], kinds),
            "    mask = ahead.shape[0] - 1", f"    s = head[{HEAD} + END]",
            "    stop = min(until, s + ahead.shape[0])",
            "    while s < stop:", "        a = s & mask",
            f"        if {_has_rows(keyed)}:",
            f"            how, err = _close_row(a, s, ahead, fresh, touched, {shared})",
            "            if how != DONE:", "                return how, err",
            "        s += 1",
            f"    return _pass(until, {shared})", "", "",
            *by_address("cells_at", ["first", "slot_of", "key_of", "ahead", *own], kinds),
            "    for i in range(first, slot_of.size):", "        s = slot_of[i]",
            "        if i == first or slot_of[i - 1] != s:",
            f"            how, err = _pass(s, {shared})",
            "            if how == NEEDS_ROOM:", "                return NEEDS_ROOM, i",
            "            if how != DONE:", "                return how, err",
            f"        if not _close_cell(key_of[i], s, ahead[i, 0], {shared}):",
            "            return NEEDS_ROOM, i",
            "    return DONE, 0", "",
        ]
    )  # fmt: skip
    found = functions | cell.functions | row.functions | rolling.functions
    module = load(source, **{name: any_kernel(f) for name, f in found.items()})
    return SparseCloseKernel(module.run_at, module.cells_at, source)


def _has_rows(keyed: bool) -> str:
    return "any_bit(touched, a)" if keyed else "ahead[a, 0].rows != 0"


def _passing(shared: str) -> list[str]:
    """Move the watermark to a slot. The slots on the way have no rows, but may complete coarser slots: the
    watermark stops at the end of each, so that an error leaves it there."""
    return [
        "    while True:",
        "        bound = until",
        f"        for g in range(1, head[{RINGS}]):",
        "            if pending[g] != NOBODY:",
        f"                bound = min(bound, (pending[g] + 1) * head[{HEAD} + {RING} * g])",
        f"        for g in range(head[{RINGS}]):",
        f"            ring = {HEAD} + {RING} * g",
        "            if bound < (head[ring + END] + 1) * head[ring]:  # a division takes longer",
        "                continue",
        "            end = bound // head[ring] if g > 0 else bound",
        "            if pending[g] != NOBODY:",
        f"                how, err = _roll_up(ring, g, {shared})",
        "                if how != DONE:",
        "                    return how, err",
        "            head[ring + END] = end",
        "            if head[ring + CAPACITY] > 0:  # it keeps so many slots",
        "                head[ring + LOW] = max(head[ring + LOW], end - head[ring + CAPACITY])",
        "                head[ring + PLAIN] = head[ring + LOW]",
        "        if bound == until:",
        "            break",
    ]


def _close_cell(e: Emitter, slots: SlotLayout) -> None:
    """Make the cell of a key in slot `s` of the finest ring, from the record `r`."""
    e.line(f"c = cell_for(head, spans, groups, free, {cells_allocated(slots)}, k, s)")
    e.line("if c < 0:")
    e.line("    return False")
    for name, _ in slots.stored:
        e.line(f"f_{name}[c] = r.{name}")
    for m, mark in enumerate(slots.marks[1:], 1):  # every cell has the mark of rows
        e.line(f"_put(marks, {m}, c, r.{mark} != 0)")
    e.line("if _add(totals[k], r) != 0:")
    e.line(f"    head[{TOTAL}] = 0")
    _due(e, "1")


def _close_row(e: Emitter, slots: SlotLayout, keyed: bool, own: list[str]) -> None:
    """Close the slot `s`, whose records are in row `a`."""
    shared = ", ".join(own)
    e.line(f"how, err = _pass(s, {shared})")
    e.line("if how != DONE:")
    e.line("    return how, err")
    e.line(f"keys = head[{KEYS}]")
    if slots.carries:  # a slot whose sum overflows stops the loop before anything changes
        with e.block("for w in range(due.shape[1]):"):
            e.line("word = touched[a, w]" if keyed else "word = np.int64(1)")
            with e.block("while word != 0:"):
                e.line("k = 64 * w + first_bit(word)")
                e.line(f"if {' or '.join(f'ahead[a, k].{name} != 0' for name in slots.carries)}:")
                e.line("    return FAILED, OVERFLOW")
                e.line("word &= word - 1")
    with e.block("for w in range(due.shape[1]):"):
        e.line("word = touched[a, w]" if keyed else "word = np.int64(1)")
        with e.block("while word != 0:"):
            e.line("k = 64 * w + first_bit(word)")
            with e.block("if k < keys and ahead[a, k].rows != 0:"):  # an insert may have been rolled back
                e.line(f"if not _close_cell(k, s, ahead[a, k], {shared}):")
                e.line("    return NEEDS_ROOM, 0")
                e.line("ahead[a, k] = fresh[0]")
            e.line("word &= word - 1")
            if keyed:
                e.line("touched[a, w] = word")


def _due(e: Emitter, number: str) -> None:
    """Note that a key has a cell in a slot that is part of one of the ring `number`."""
    with e.block(f"if {number} < head[{RINGS}]:"):
        e.line(f"due[{number}, k >> 6] |= np.int64(1) << (k & 63)")
        # All slots before this one are closed, so it is part of the first that is not complete.
        e.line(f"pending[{number}] = head[{HEAD} + {RING} * ({number}) + END]")


def _roll_up(e: Emitter, slots: SlotLayout, own: list[str]) -> None:
    """Make the slot `pending[number]` of a ring, for the keys that are due."""
    e.line(f"room = head[{ROOM}]")
    e.line(f"size = {cells_allocated(slots)}")
    e.line(f"ratio = head[ring] // head[ring - {RING}]")
    e.line("s = pending[number]")
    with e.block("for w in range(due.shape[1]):"):
        e.line("word = due[number, w]")
        with e.block("while word != 0:"):
            e.line("k = 64 * w + first_bit(word)")
            e.line("below_at = (number - 1) * room + k")
            e.line("last = spans[below_at, GROUPS_AT] + spans[below_at, GROUP_COUNT]")
            e.line("g = last - 1")  # they are the newest cells of the key
            with e.block("while g > spans[below_at, GROUPS_AT] and groups[g, START] > s * ratio:"):
                e.line("g -= 1")
            e.line("c = cell_for(head, spans, groups, free, size, number * room + k, s)")
            e.line("if c < 0:")
            e.line("    return NEEDS_ROOM, 0")
            for part in slots.stored_codes():
                for target, code in zip(columns_at(part, "f", "c"), part.identity()):
                    put(e, target, code)
            for m in range(1, len(slots.marks)):
                e.line(f"_put(marks, {m}, c, False)")
            with e.block("while g < last:"):
                e.line("o, stop = cells_in(groups, g, s * ratio, (s + 1) * ratio)")
                with e.block("while o < stop:"):
                    for part in slots.stored_codes():
                        combine_into(e, part, columns_at(part, "f", "c"), columns_at(part, "f", "o"))
                    for m in range(1, len(slots.marks)):
                        e.line(f"if _has(marks, {m}, o):")
                        e.line(f"    _put(marks, {m}, c, True)")
                    e.line("o += 1")
                e.line("g += 1")
            e.line("if err != 0:")
            e.line("    return FAILED, err")
            _due(e, "number + 1")
            e.line("word &= word - 1")
            e.line("due[number, w] = word")
