"""The kernel that inserts rows into the open slots of a wheel."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidemill.aggregates.layout import Layout
from tidemill.codegen.accumulate import with_arguments
from tidemill.codegen.algebra import PartCode, numpy_type
from tidemill.codegen.columns import Columns
from tidemill.codegen.expressions import Emitter
from tidemill.codegen.modules import load
from tidemill.core.types import DataType
from tidemill.expr.nodes import Node
from tidemill.jit.addresses import ADDRESSES, by_address, dtype_text
from tidemill.jit.kernel import any_kernel
from tidemill.wheels.loops.range_plan import HEAD
from tidemill.wheels.loops.slots import PLAN, SlotLayout


@dataclass(frozen=True)
class InsertKernel:
    """`run(n, ts, *columns, kid, begin, grain, inverse, ahead, touched, first, others, logs, places,
    records)`.

    It returns `(early, late, err)`. Slots of `grain` ticks are open from number `first` on, which starts at
    tick `begin`; `inverse` is 1 / grain. Positions of rows beyond the last open slot go to the front of
    `others`, those of late rows to its back. The kernel stops at the first row that fails.

    If `logs` is set, each record is copied to `records` before it changes, and its slot and key (32 bits
    each) to `places` from 1 on; `places[0]` is their number. The log is complete even if a function raises.

    `touched`, which is passed only with keys, gets a bit for each key with rows in a slot.

    `run_at(frame, n, grain, logs, ts, *columns, kid)` takes all arrays by address: the frame has the head,
    the open slots, `touched`, `others`, `places` and `records`; `kid` is passed only with keys. `run_at`
    exists only if columns have eight bytes a row and no nulls.
    """

    run: Callable[..., tuple[int, int, int]]
    run_at: Callable[..., tuple[int, int, int]] | None
    source: str


@functools.lru_cache(maxsize=256)
def insert_kernel(
    columns: Columns, layout: Layout, args: tuple[tuple[Node, ...], ...], keyed: bool
) -> InsertKernel:
    """Compile an insert kernel. Consecutive rows of one slot and key are aggregated in registers."""
    slots = SlotLayout(layout)
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
        # A product is off by at most one, and much faster than a division.
        e.line("q = np.int64(np.float64(d) * inverse)")
        e.line("if q * grain > d:")
        e.line("    q -= 1")
        e.line("elif d - q * grain >= grain:")
        e.line("    q += 1")
        e.line("low = begin + q * grain")
        e.line("k = np.uint64(kid[i])" if keyed else "k = np.uint64(0)")
        e.line("slot = (first + q) & mask")
        e.line("r = ahead[np.uint64(slot), k]")
        for name in slots.open_type.names or ():
            if name != "rows":
                e.line(f"l_{name} = r.{name}")
        for name in slots.carries:
            e.line(f"large -= np.int64(l_{name} != 0)")
        with e.block("if logs:"):
            e.line("w = records[np.uint64(logged)]")
            e.line("w.rows = r.rows")
            for name in slots.open_type.names or ():
                if name != "rows":
                    e.line(f"w.{name} = l_{name}")
            e.line("logged += 1")
            e.line("places[np.uint64(logged)] = (slot << 32) | np.int64(k)")
            e.line("places[0] = logged")
        if keyed:
            e.line("bit = np.int64(1) << np.int64(k & np.uint64(63))")
            e.line("touched[np.uint64(slot), k >> np.uint64(6)] |= bit")
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
        e.line("if err != 0:")
        e.line("    break")
        e.line("r.rows += i - before")
        for name in slots.open_type.names or ():
            if name != "rows":
                e.line(f"r.{name} = l_{name}")
        for name in slots.carries:
            e.line(f"large += np.int64(l_{name} != 0)")
    # Checked at the end: a sum may leave int64 and return, so the order of rows does not matter.
    e.line("err |= OVERFLOW * (large != 0)")
    parameters = ", ".join(
        ["n", "ts", *columns.parameters, "kid", "begin", "grain", "inverse", "ahead",
         *(["touched"] if keyed else []),
         "first", "others", "logs", "places", "records"]
    )  # fmt: skip
    body = [
        "    err = 0", "    late = 0", "    m = 0", "    large = 0", "    mask = ahead.shape[0] - 1",
        "    reach = ahead.shape[0] * grain", "    i = 0", "    logged = 0", *e.lines,
        "    return m, late, err", "",
    ]  # fmt: skip
    lines = ["@kernel", f"def run({parameters}):", *body]
    by_places = not (columns.nullable or columns.bad)
    by_places = by_places and all(has_eight_bytes(kind) for _, kind in columns.schema)
    if by_places:
        lines = [PLAN, ADDRESSES, *lines, *_rows_at(columns, slots, keyed), *body]
    functions = {name: any_kernel(f) for name, f in e.functions.items()}
    source = "\n".join(lines)
    module = load(source, **functions)
    return InsertKernel(module.run, module.run_at if by_places else None, source)


def has_eight_bytes(kind: DataType) -> bool:
    """Whether an Arrow column stores the eight bytes a row that kernels read."""
    return kind.kind in ("int64", "float64", "timestamp", "duration")


def _rows_at(columns: Columns, slots: SlotLayout, keyed: bool) -> list[str]:
    """The first lines of `run_at`."""
    names = ["ts", *columns.parameters, *(["kid"] if keyed else [])]
    kinds = ["i8", *(numpy_type(kind) for _, kind in columns.schema), *(["i8"] if keyed else [])]
    arrays = {
        **slots.arrays(), "others": ("np.dtype('u4')", 1), "places": ("np.dtype('i8')", 1),
        "records": (dtype_text(slots.open_type), 1),
    }  # fmt: skip
    return [
        *(f"{name}_type = np.dtype({kind!r})" for name, kind in zip(names, kinds)),
        *by_address(
            "run_at",
            ["head", "ahead", "touched", "others", "places", "records", "n", "grain", "logs", *names], arrays,
        ),
        *(f"    {name} = carray(pointer({name}, {name}_type), (n,))" for name in names),
        f"    first = head[{HEAD} + END]", "    begin = first * grain", "    inverse = 1.0 / grain",
    ]  # fmt: skip


def _accumulate(e: Emitter, part: PartCode, nodes: tuple[Node, ...]) -> None:
    def step(values: list[Any]) -> None:
        part.take(e, [f"l_{name}" for name in part.names], values)

    with_arguments(e, nodes, step)
