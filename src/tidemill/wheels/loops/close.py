"""The kernel that closes open slots and rolls finer slots up into coarser rings."""

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
from tidemill.wheels.loops.range_plan import HEAD, KEYS, MARKED, RING, RINGS, ROOM, TOTAL
from tidemill.wheels.loops.slots import (
    BITS,
    PLAN,
    SlotLayout,
    adding_records,
    columns_at,
    combine_into,
    prefix_sums,
    put,
)  # fmt: skip

DONE, NEEDS_MARKS, FAILED = range(3)
"""The outcome of closing."""


@dataclass(frozen=True)
class CloseKernel:
    """`run_at(frame, until) -> (how, err)`.

    Closes slots below `until` and rolls them up; `head` records the progress. `fresh` has the record
    of an empty slot. The frame has `head`, `ahead`, `fresh`, `totals`, `marks`, columns and prefixes.

    `roll_at(frame, first) -> (how, err)` only rolls up, into the rings from number `first` on.
    """

    run_at: Callable[..., tuple[int, int]]
    roll_at: Callable[..., tuple[int, int]]
    source: str


@functools.lru_cache(maxsize=256)
def close_kernel(layout: Layout, prefix: bool) -> CloseKernel:
    slots = SlotLayout(layout)
    names = [name for name, _ in slots.stored]
    e = Emitter(Schema(()), {}, indent=1)
    with e.block("while head[finest + END] < until:"):
        e.line("s = head[finest + END]")
        e.line("a = np.uint64(s & mask)")
        _look_for_carries(e, slots)
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
        _roll_up(e, slots, prefix, "1")
    rolling = Emitter(Schema(()), {}, indent=1)
    _roll_up(rolling, slots, prefix, "first")
    adding, functions = adding_records(slots)
    columns = [f"f_{name}" for name in names] + [f"x_{name}" for name in names]
    arrays = ["head", "ahead", "fresh", "totals", "marks", *columns]
    begin = [
        "    err = 0", f"    keys = head[{KEYS}]", f"    room = head[{ROOM}]", f"    finest = {HEAD}",
    ]  # fmt: skip
    source = "\n".join(
        [
            PLAN, ADDRESSES, f"DONE, NEEDS_MARKS, FAILED = {DONE}, {NEEDS_MARKS}, {FAILED}", BITS,
            *adding, "",
            "@kernel", "def _closed(head, ring):",
            "    head[ring + END] += 1",
            "    head[ring + PLAIN] = max(head[ring + PLAIN], head[ring + END] - head[ring + CAPACITY])",
            "    if head[ring + BLOCK_ROW] == NEVER:",
            "        head[ring + LOW] = head[ring + PLAIN]", "", "",
            *by_address("run_at", ["until", *arrays], slots.arrays()), *begin,
            "    mask = ahead.shape[0] - 1", *e.lines, "    return DONE, err", "",
            *by_address("roll_at", ["first", *arrays], slots.arrays()), *begin, *rolling.lines,
            "    return DONE, err", "",
        ]
    )  # fmt: skip
    compiled = {name: any_kernel(f) for name, f in (functions | e.functions).items()}
    module = load(source, **compiled)
    return CloseKernel(module.run_at, module.roll_at, source)


def _look_for_carries(e: Emitter, slots: SlotLayout) -> None:
    """A slot whose sum overflows stops the loop before anything changes."""
    if slots.carries:
        with e.block("for k in range(keys):"):
            e.line(f"if {' or '.join(f'ahead[a, k].{name} != 0' for name in slots.carries)}:")
            e.line("    return FAILED, OVERFLOW")


def _look_for_gaps(e: Emitter, slots: SlotLayout) -> None:
    """While marks are not stored, a cell that lacks one stops the loop before anything changes."""
    with e.block(f"if head[{MARKED}] == 0:"), e.block("for k in range(keys):"):
        lacks = " or ".join(f"ahead[a, k].{mark} == 0" for mark in slots.marks)
        e.line(f"if {lacks}:")
        e.line("    return NEEDS_MARKS, err")


def _mark(e: Emitter, present: list[str]) -> None:
    with e.block(f"if head[{MARKED}] != 0:"):
        for m, condition in enumerate(present):
            e.line(f"_put(marks, {m}, c, {condition})")


def _roll_up(e: Emitter, slots: SlotLayout, prefix: bool, first: str) -> None:
    """Roll finer slots up into each slot that is now complete, in the rings from number `first` on."""
    with e.block(f"for g in range({first}, head[{RINGS}]):"):
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
                for target, code in zip(columns_at(part, "f", "c"), part.identity()):
                    put(e, target, code)
            _mark(e, ["False"] * len(slots.marks))
        with e.block("for b in range(max(s * ratio, head[below + LOW]), (s + 1) * ratio):"):
            e.line("lower = row_of(head, below, b)")
            with e.block("for k in range(keys):"):
                e.line("c = row * room + k")
                e.line("o = lower * room + k")
                for part in slots.stored_codes():
                    combine_into(e, part, columns_at(part, "f", "c"), columns_at(part, "f", "o"))
                marks = len(slots.marks)
                _mark(e, [f"_has(marks, {m}, c) or _has(marks, {m}, o)" for m in range(marks)])
        _published(e, slots, "ring", prefix)


def _published(e: Emitter, slots: SlotLayout, ring: str, prefix: bool) -> None:
    """Publish slot `s` of a ring, unless something failed."""
    if prefix:
        prefix_sums(e, slots, ring)
    e.line("if err != 0:")
    e.line("    return FAILED, err")
    e.line(f"_closed(head, {ring})")
