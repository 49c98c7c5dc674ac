"""The kernels that add cells and records of one wheel to another."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.aggregates.layout import Layout
from tidemill.codegen.expressions import Emitter
from tidemill.codegen.modules import load
from tidemill.core.schema import Schema
from tidemill.jit.kernel import any_kernel
from tidemill.wheels.loops.range_plan import KEYS, ROOM
from tidemill.wheels.loops.slots import (
    BITS,
    PLAN,
    SlotLayout,
    adding_records,
    columns_at,
    combine_into,
    prefix_sums,
)  # fmt: skip


@dataclass(frozen=True)
class MergeKernel:
    """`cells(rows, to_rows, key_of, room, to_room, marked, marks, to_marks, *columns, *to_columns) -> err`
    adds the cells of one wheel to those of another, in which key `k` is `key_of[k]`.

    `records(key_of, records, to_records) -> err` does the same for records of open slots or totals.

    `placed(kid, slot, records, ahead) -> err` adds each record to the open slot of a key.

    `prefixes(head, ring, *columns, *prefixes) -> err` recomputes the running sums of a ring.
    """

    cells: Callable[..., int]
    records: Callable[..., int]
    placed: Callable[..., int]
    prefixes: Callable[..., int]
    source: str


@functools.lru_cache(maxsize=256)
def merge_kernel(layout: Layout) -> MergeKernel:
    slots = SlotLayout(layout)
    names = [n for n, _ in slots.stored]
    e = Emitter(Schema(()), {}, indent=1)
    with e.block("for i in range(rows.size):"), e.block("for k in range(key_of.size):"):
        e.line("o = rows[i] * room + k")
        e.line("c = to_rows[i] * to_room + key_of[k]")
        for part in slots.stored_codes():
            combine_into(e, part, columns_at(part, "x", "c"), columns_at(part, "f", "o"))
        for m in range(len(slots.marks)):
            e.line(f"if not marked or _has(marks, {m}, o):")
            e.line(f"    _put(to_marks, {m}, c, True)")
    columns = ", ".join([f"f_{n}" for n in names] + [f"x_{n}" for n in names])
    own = "rows, to_rows, key_of, room, to_room, marked, marks, to_marks"
    lines = ["@kernel", f"def cells({own}, {columns}):", "    err = 0", *e.lines, "    return err", ""]
    p = Emitter(Schema(()), {}, indent=1)
    with p.block("for s in range(head[ring + LOW], head[ring + END]):"):
        p.line("row = row_of(head, ring, s)")
        prefix_sums(p, slots, "ring")
    adding, functions = adding_records(slots)
    at = "ahead[slot[i] & mask, kid[i]]"
    large = [f"        err |= OVERFLOW * ({at}.{name} != 0)" for name in slots.carries]
    if large:  # checked after all are added, so that their order does not matter
        large.insert(0, "    for i in range(kid.size):")
    source = "\n".join(
        [
            PLAN, BITS, *adding, "", *lines, "",
            "@kernel", "def records(key_of, records, to_records):", "    err = 0",
            "    for k in range(key_of.size):", "        err |= _add(to_records[key_of[k]], records[k])",
            "    return err", "", "",
            "@kernel", "def placed(kid, slot, records, ahead):", "    err = 0",
            "    mask = ahead.shape[0] - 1", "    for i in range(kid.size):",
            "        err |= _add(ahead[slot[i] & mask, kid[i]], records[i])",
            *large,
            "    return err", "", "",
            "@kernel", f"def prefixes(head, ring, {columns}):", "    err = 0",
            f"    keys = head[{KEYS}]", f"    room = head[{ROOM}]", *p.lines, "    return err", "",
        ]
    )  # fmt: skip
    found = functions | e.functions | p.functions
    module = load(source, **{name: any_kernel(f) for name, f in found.items()})
    return MergeKernel(module.cells, module.records, module.placed, module.prefixes, source)
