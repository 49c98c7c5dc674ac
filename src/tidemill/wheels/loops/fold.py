"""The kernels that fold slots into partials, for each range and key, or for each range over many keys.

Queries for other results than the wheel's own, or over several keys, take two steps. `fold` combines slots
into records of the layout's whole state; the stores of buckets and replicas fold into the same records.
`lower` computes results from records, also other results than the wheel's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from tidemill.aggregates.layout import Layout
from tidemill.codegen.expressions import Emitter
from tidemill.codegen.modules import load
from tidemill.core.schema import Schema
from tidemill.jit.kernel import any_kernel
from tidemill.wheels.loops.answer import CHOICE, Storage, arrays_read, combined, reading, size_of
from tidemill.wheels.loops.range_plan import FIRST, KEYS, MARKED, PLAN_ROOM, ROOM
from tidemill.wheels.loops.slots import PLAN, SlotLayout, combine_into, lowered


@functools.lru_cache(maxsize=256)
def fold_kernel(layout: Layout, storage: Storage) -> Callable[..., tuple[int, int]]:
    """`fold(starts, ends, kid, total, *choice, *arrays, records) -> (bad, err)`.

    Combines range `i` of slots into record `i`, for key `i`, or with `total` for all keys. `bad` is the first
    range that is not held, or -1. The field `rows` of a record counts the keys that had rows; a count that
    closed slots do not store counts the keys that had values. The `choice` and the arrays
    are as in `AnswerKernel`.
    """
    slots = SlotLayout(layout)
    stored = arrays_read(slots, storage)
    e = Emitter(Schema(()), {}, indent=1)
    e.line("b = 0")
    with e.block("for i in range(starts.size):"):
        with e.block("if i == 0 or starts[i] != starts[i - 1] or ends[i] != ends[i - 1]:"):
            e.line(f"kind, b, _ = plan(head, starts[i], ends[i], {', '.join(CHOICE)}, segments)")
            e.line("if kind == NOT_HELD:")
            e.line("    return i, err")
        e.line("r = records[i]")
        e.line("begin_key = 0 if total else i")
        e.line("end_key = kid.size if total else i + 1")
        with e.block("for q in range(begin_key, end_key):"):
            e.line("k = kid[q]")
            e.line(f"m = b if 0 <= k < head[{KEYS}] else 0")
            states = combined(e, slots, storage, any_row="False")
            for part in slots.stored_codes():
                combine_into(e, part, [f"r.{n}" for n in part.names], states[part.index])
            for index, mark in slots.mark_of.items():
                [name] = layout.parts[index].columns.names
                e.line(f"r.{name} += np.int64(p{mark})")
            e.line("r.rows += np.int64(p0)")
    parameters = ["starts", "ends", "kid", "total", *CHOICE, *stored, "records"]
    lines = [
        "@kernel", f"def fold({', '.join(parameters)}):", "    err = 0", f"    room = head[{ROOM}]",
        f"    marked = head[{MARKED}] != 0", f"    first = head[{FIRST}]",
        f"    segments = np.empty(({PLAN_ROOM}, 4), np.int64)", *size_of(slots, storage),
        *e.lines, "    return -1, err", "",
    ]  # fmt: skip
    source = "\n".join([PLAN, *reading(storage), *lines])
    functions = {name: any_kernel(f) for name, f in e.functions.items()}
    fold: Callable[..., tuple[int, int]] = load(source, **functions).fold
    return fold


@functools.lru_cache(maxsize=256)
def lower_kernel(layout: Layout) -> Callable[..., int]:
    """`lower(records, *outputs) -> err`: validity and values of each result, a row for each record."""
    slots = SlotLayout(layout)
    e = Emitter(Schema(()), {}, indent=1)
    with e.block("for i in range(records.size):"):
        e.line("r = records[i]")
        states = {
            c.index: [e.assign(f"r.{n}", kind).code for n, kind in c.part.columns] for c in slots.codes()
        }
        for j, result in enumerate(layout.results):
            lowered(e, j, result, layout, states, "[i]")
    outputs = ", ".join(f"{x}{j}" for j in range(len(layout.results)) for x in ("w", "o"))
    lines = ["@kernel", f"def lower(records, {outputs}):", "    err = 0", *e.lines, "    return err", ""]
    functions = {name: any_kernel(f) for name, f in e.functions.items()}
    lower: Callable[..., int] = load("\n".join([PLAN, *lines]), **functions).lower
    return lower
