"""The kernels for sliding and session windows over the closed slots of a wheel (paper 001, section 3.5).

Slots are combined into *slices*, which end where a window starts or ends. A window is the last `n` slices
at its end. If the aggregates have an exact inverse, the slices that leave a window are subtracted.
Otherwise the two-stacks algorithm is used: suffixes of the older slices and a running partial of the newer
ones. Slices are the same for all keys.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidemill.aggregates.layout import Layout
from tidemill.codegen.algebra import PartCode, numpy_type
from tidemill.codegen.expressions import Emitter
from tidemill.codegen.modules import load
from tidemill.core.schema import Schema
from tidemill.core.types import BOOL, INT64, DataType
from tidemill.jit.addresses import ADDRESSES, by_address, dtype_text
from tidemill.jit.kernel import any_kernel
from tidemill.wheels.loops.range_plan import HEAD, KEYS, MARKED, ROOM
from tidemill.wheels.loops.slots import (
    BITS,
    PLAN,
    SlotLayout,
    apply,
    columns_at,
    combine_into,
    lowered,
)

RANGE, SLIDE, ORIGIN, SLICES, EACH, PUSHED, FIRST_SLICE, MIDDLE, GRAIN, FROM = range(10)
"""Positions in the numbers of a window: its range, slide and origin in finest slots; slices per window and
per slide; slices so far; the first slice of the next window; the first slice that is not in `suffixes`; ticks
in a finest slot; the earliest slot at which a window starts."""


@dataclass(frozen=True)
class SlideKernel:
    """`run_at(frame, from, until, rows) -> (rows, missing, err)`.

    Takes the closed slots `[from, until)` and appends the windows that end there after the first `rows`
    rows: the key, the start and end in ticks, `w<j>` and `o<j>` for each result. Returns the new number of
    rows, and whether a result is missing in one. The frame has, in this order, `window`, `head`, `marks`,
    columns, `slices`, `suffixes`, `running`, `current`, `fresh`, `okid`, `ostart`, `oend`, outputs.
    """

    run_at: Callable[..., tuple[int, bool, int]]
    subtracts: bool
    source: str


def slice_type(slots: SlotLayout) -> np.dtype[Any]:
    """The record type of a slice: the stored fields, and for each mark the number of cells that had it."""
    fields = [(n, numpy_type(kind)) for c in slots.stored_codes() for n, kind in c.part.columns]
    fields += [(f"mark{m}", "i8") for m in range(len(slots.marks))]
    return np.dtype(fields, align=True)


def no_slice(slots: SlotLayout) -> Any:
    """The partial of an empty slice, in an array of one."""
    fresh, empty = slots.fresh(), np.zeros(1, dtype=slice_type(slots))
    for part in slots.stored_codes():
        for name in part.names:
            empty[name] = fresh[name]
    return empty


@functools.lru_cache(maxsize=256)
def slide_kernel(layout: Layout) -> SlideKernel:
    slots = SlotLayout(layout)
    subtracts = slots.subtracts
    functions: dict[str, Any] = {}
    helpers = [
        *_function("_plus(o, r)", slots, functions, lambda e, p: _both(e, p, "combine")),
        *_slot_function(slots, functions),
        *(
            _function("_minus(o, r)", slots, functions, lambda e, p: _both(e, p, "inverse"), "-")
            if subtracts
            else _joined_function(slots, functions)
        ),
    ]
    e = Emitter(Schema(()), {}, indent=1)
    # Divisions take longer than the rest, so rows and positions in a slide are counted.
    e.line(f"begin = head[{HEAD} + OFFSET]")
    e.line(f"row = row_of(head, {HEAD}, start) - 1")
    e.line(f"slide = window[{SLIDE}]")
    e.line(f"past = (start - window[{ORIGIN}]) % slide")
    e.line(f"short = window[{RANGE}] % slide")
    with e.block("for s in range(start, until):"):
        e.line("row += 1")
        e.line(f"if row == begin + head[{HEAD} + CAPACITY]:")
        e.line("    row = begin")
        e.line("past += 1")
        e.line("if past == slide:")
        e.line("    past = 0")
        with e.block("for k in range(keys):"):
            columns = ", ".join(f"f_{name}" for name, _ in slots.stored)
            e.line(f"err |= _slot(current[k], row * room + k, marked, marks, {columns})")
        e.line("if past != 0 and (short == 0 or past != slide - short):")
        e.line("    continue")
        _push(e)
        with e.block("if past == 0:"):
            _emit(e, slots, subtracts, functions)
    outputs = [f"{x}{j}" for j in range(len(layout.results)) for x in ("w", "o")]
    columns_ = [f"f_{name}" for name, _ in slots.stored]
    parameters = [
        "start", "until", "rows", "window", "head", "marks", *columns_, "slices", "suffixes", "running",
        "current", "fresh", "okid", "ostart", "oend", *outputs,
    ]  # fmt: skip
    source = "\n".join(
        [
            PLAN, ADDRESSES, BITS, *helpers, *by_address("run_at", parameters, _arrays(slots)),
            "    err = 0", "    missing = False", f"    keys = head[{KEYS}]", f"    room = head[{ROOM}]",
            f"    marked = head[{MARKED}] != 0",
            "    size = slices.shape[0]", "    whole = fresh.copy()", *e.lines,
            "    return rows, missing, err", "",
        ]
    )  # fmt: skip
    compiled = {name: any_kernel(f) for name, f in functions.items()}
    return SlideKernel(load(source, **compiled).run_at, subtracts, source)


def _arrays(slots: SlotLayout) -> dict[str, tuple[str, int]]:
    """Types and dimensions of the arrays of the kernel that slides."""
    ints, slices = "np.dtype('i8')", dtype_text(slice_type(slots))
    found = slots.arrays()
    found |= dict.fromkeys(("window", "okid", "ostart", "oend"), (ints, 1))
    found |= {"slices": (slices, 2), "suffixes": (slices, 2)}
    found |= dict.fromkeys(("running", "current", "fresh"), (slices, 1))
    for j, result in enumerate(slots.layout.results):
        found |= {f"w{j}": ("np.dtype('?')", 1), f"o{j}": (f"np.dtype({output_type(result.type)!r})", 1)}
    return found


def output_type(kind: DataType) -> str:
    """The NumPy type in which a result is written."""
    return "u1" if kind == BOOL else numpy_type(kind)


def _function(
    signature: str, slots: SlotLayout, functions: dict[str, Any],
    step: Callable[[Emitter, PartCode], None], sign: str = "+",
) -> list[str]:  # fmt: skip
    """Generate a function of two partials that changes the first."""
    e = Emitter(Schema(()), {}, indent=1)
    for m in range(len(slots.marks)):
        e.line(f"o.mark{m} {sign}= r.mark{m}")
    for part in slots.stored_codes():
        step(e, part)
    functions |= e.functions
    return ["@kernel", f"def {signature}:", "    err = 0", *e.lines, "    return err", "", ""]


def _both(e: Emitter, part: PartCode, how: str) -> None:
    own = [f"o.{n}" for n in part.names]
    apply(e, part, own, own, [f"r.{n}" for n in part.names], how)


def _joined_function(slots: SlotLayout, functions: dict[str, Any]) -> list[str]:
    """Generate `o = a ⊕ b`; `a` is older."""
    e = Emitter(Schema(()), {}, indent=1)
    for m in range(len(slots.marks)):
        e.line(f"o.mark{m} = a.mark{m} + b.mark{m}")
    for part in slots.stored_codes():
        target, a, b = ([f"{side}.{n}" for n in part.names] for side in "oab")
        apply(e, part, target, a, b)
    functions |= e.functions
    return ["@kernel", "def _joined(o, a, b):", "    err = 0", *e.lines, "    return err", "", ""]


def _slot_function(slots: SlotLayout, functions: dict[str, Any]) -> list[str]:
    """Generate the function that adds a cell to a slice."""
    e = Emitter(Schema(()), {}, indent=1)
    for part in slots.stored_codes():
        targets = [f"o.{n}" for n in part.names]
        combine_into(e, part, targets, columns_at(part, "f", "c"))
    for m in range(len(slots.marks)):
        e.line(f"o.mark{m} += np.int64(not marked or _has(marks, {m}, c))")
    functions |= e.functions
    columns = ", ".join(f"f_{name}" for name, _ in slots.stored)
    return [
        "@kernel", f"def _slot(o, c, marked, marks, {columns}):", "    err = 0", *e.lines,
        "    return err", "", "",
    ]  # fmt: skip


def _push(e: Emitter) -> None:
    """Push the current slice, which is complete."""
    e.line(f"i = window[{PUSHED}]")
    with e.block("for k in range(keys):"):
        e.line("slices[i % size, k] = current[k]")
        # A slice in no window, as in the gaps between windows, is not added.
        e.line(f"if i >= window[{FIRST_SLICE}]:")
        e.line("    err |= _plus(running[k], current[k])")
        e.line("current[k] = fresh[0]")
    e.line(f"window[{PUSHED}] = i + 1")


def _emit(e: Emitter, slots: SlotLayout, subtracts: bool, functions: dict[str, Any]) -> None:
    """Emit the window that ends here for keys with rows in it, and move on to the next window."""
    e.line("i += 1")
    e.line(f"low = max(window[{FIRST_SLICE}], 0)")
    if not subtracts:
        # Suffixes answer [low, middle), the running partial [middle, i).
        with e.block(f"if low >= window[{MIDDLE}]:"):
            with e.block("for k in range(keys):"):
                e.line("running[k] = fresh[0]")
                e.line("suffixes[(i - 1) % size, k] = slices[(i - 1) % size, k]")
                with e.block("for q in range(i - 2, low - 1, -1):"):
                    e.line("o = suffixes[q % size, k]")
                    e.line("err |= _joined(o, slices[q % size, k], suffixes[(q + 1) % size, k])")
            e.line(f"window[{MIDDLE}] = i")
    with e.block("for k in range(keys):"):
        if subtracts:
            e.line("r = running[k]")
        else:
            e.line("err |= _joined(whole[0], suffixes[low % size, k], running[k])")
            e.line("r = whole[0]")
        with e.block("if r.mark0 > 0:"):
            e.line("okid[rows] = k")
            e.line(f"ostart[rows] = max(s + 1 - window[{RANGE}], window[{FROM}]) * window[{GRAIN}]")
            e.line(f"oend[rows] = (s + 1) * window[{GRAIN}]")
            _write(e, slots)
    functions |= e.functions
    e.line(f"next = i + window[{EACH}] - window[{SLICES}]")
    if subtracts:
        with e.block("for q in range(low, min(next, i)):"), e.block("for k in range(keys):"):
            e.line("err |= _minus(running[k], slices[q % size, k])")
    else:
        with e.block("if next >= i:"):  # the next window shares no slice with this one
            with e.block("for k in range(keys):"):
                e.line("running[k] = fresh[0]")
            e.line(f"window[{MIDDLE}] = next")
    e.line(f"window[{FIRST_SLICE}] = next")


def _write(e: Emitter, slots: SlotLayout) -> None:
    """Append the results of a partial `r` as a row."""
    states = {
        p.index: [e.assign(f"r.{n}", kind).code for n, kind in p.part.columns]
        for p in slots.stored_codes()
    }
    for part, mark in slots.mark_of.items():
        states[part] = [e.assign(f"r.mark{mark}", INT64).code]
    for j, result in enumerate(slots.layout.results):
        lowered(e, j, result, slots.layout, states, "[rows]")
        e.line(f"missing = missing or not w{j}[rows]")
    e.line("rows += 1")


@functools.lru_cache(maxsize=256)
def add_slices_kernel(layout: Layout) -> Callable[..., int]:
    """`add(key_of, slices, to_slices) -> err` adds the partial of key `k` to that of `key_of[k]`."""
    slots = SlotLayout(layout)
    functions: dict[str, Any] = {}
    plus = _function("_plus(o, r)", slots, functions, lambda e, p: _both(e, p, "combine"))
    lines = [
        "@kernel", "def add(key_of, slices, to_slices):", "    err = 0",
        "    for k in range(key_of.size):", "        err |= _plus(to_slices[key_of[k]], slices[k])",
        "    return err", "",
    ]  # fmt: skip
    compiled = {name: any_kernel(f) for name, f in functions.items()}
    add: Callable[..., int] = load("\n".join([PLAN, *plus, *lines]), **compiled).add
    return add


# --- sessions -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SessionKernel:
    """`run(from, until, now, gap, head, marks, *columns, sessions, fresh, okid, ofirst, olast, *outputs)
    -> (rows, err)`.

    Takes the closed slots `[from, until)` and writes the sessions that are complete at watermark `now`, in
    ticks: the key, the first and the last instant, the results. `sessions` holds the open sessions.
    """

    run: Callable[..., tuple[int, int]]
    source: str


@functools.lru_cache(maxsize=256)
def session_kernel(layout: Layout, first: str, last: str) -> SessionKernel:
    """`first` and `last` are the fields with the first and the last instant of a slot."""
    slots = SlotLayout(layout)
    functions: dict[str, Any] = {}
    helpers = _slot_function(slots, functions)
    columns = [f"f_{name}" for name, _ in slots.stored]
    e = Emitter(Schema(()), {}, indent=1)
    with e.block("for s in range(start, until + 1):"):
        # One more pass after the last slot writes the sessions that the watermark closes.
        e.line(f"row = row_of(head, {HEAD}, s)")
        with e.block("for k in range(keys):"):
            e.line("r = sessions[k]")
            e.line("c = row * room + k")
            e.line("there = s < until and (not marked or _has(marks, 0, c))")
            e.line(f"next = f_{first}[c] if there else now")
            e.line("if not there and s < until:")
            e.line("    continue")
            with e.block(f"if r.mark0 > 0 and next - r.{last} >= gap:"):
                e.line("okid[rows] = k")
                e.line(f"ofirst[rows] = r.{first}")
                e.line(f"olast[rows] = r.{last}")
                _write(e, slots)
                e.line("sessions[k] = fresh[0]")
            e.line("if there:")
            e.line(f"    err |= _slot(sessions[k], c, marked, marks, {', '.join(columns)})")
    functions |= e.functions
    outputs = [f"{x}{j}" for j in range(len(layout.results)) for x in ("w", "o")]
    parameters = ", ".join(
        ["start", "until", "now", "gap", "head", "marks", *columns, "sessions", "fresh", "okid", "ofirst",
         "olast", *outputs]
    )  # fmt: skip
    source = "\n".join(
        [
            PLAN, BITS, *helpers, "@kernel", f"def run({parameters}):", "    err = 0", "    rows = 0",
            "    missing = False", f"    keys = head[{KEYS}]", f"    room = head[{ROOM}]",
            f"    marked = head[{MARKED}] != 0",
            *e.lines, "    return rows, err", "",
        ]
    )  # fmt: skip
    compiled = {name: any_kernel(f) for name, f in functions.items()}
    return SessionKernel(load(source, **compiled).run, source)
