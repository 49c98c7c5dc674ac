"""Generate the loop that aggregates intervals of keys in the time-travel index.

Both ends of an interval are cursors (`find`). What is between them is folded, by part of the layout:

- `subtract`: the rows that come in are combined, those that go are subtracted;
- `two_stacks`: while cursors walk, suffixes of the leaf at the low end, a running partial of that at the high
  end, and the partials of the leaves and nodes between them, which change only with one of the two leaves;
- `tree`: the rows of both leaves, and the partials of the leaves and nodes between them;
- `rows`: all rows.

Base rows come in order of key and low end. If both ends have moved forward by a few rows, the cursors walk;
otherwise they are sought, and the state begins with the partials of leaves and nodes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.aggregates.layout import Layout
from tidemill.codegen.algebra import PartCode
from tidemill.codegen.expressions import Emitter
from tidemill.codegen.fold import output, read, reset, step, variables
from tidemill.codegen.modules import load
from tidemill.core.schema import Schema
from tidemill.intervals.loops.summaries import BLOCKS
from tidemill.jit.kernel import any_kernel

WALK = 24
"""Cursors that would have to move by more rows are sought, which takes about as long."""
AT_ONCE = 256
"""So many answers are made from one version of a key."""
FIND = "from tidemill.intervals.loops.find import *"


@dataclass(frozen=True)
class AnswerKernel:
    """`run(order, keys, low, high, at, most, prevailing, heads, nodes, rows, entries, elements, suffixes,
    clock, limit, texts, first, *outputs) -> next, err`.

    `order` has the rows in order of key and low end, of which those from `first` on are answered. If `next`
    is before the last one, heads are too old, and it goes on with newer ones. With `most` of 0 or more, only
    so many rows nearest to `at` belong to an interval.

    `entries` and `elements` are the records of `nodes` and `rows`, and `suffixes`
    is space for a leaf of elements. Outputs are `o<j>` and `w<j>` (validity) for each result.
    """

    run: Callable[..., tuple[int, int]]
    source: str


@functools.lru_cache(maxsize=512)
def answer_kernel(layout: Layout, sliding: tuple[str, ...]) -> AnswerKernel:
    """Generate a kernel. `sliding` names how each part is folded."""
    e = Emitter(Schema(()), {}, indent=1)
    parts = [PartCode(j, part) for j, part in enumerate(layout.parts)]
    by = {how: [p for p, s in zip(parts, sliding) if s == how] for how in set(sliding)}
    moving, stacks = by.get("subtract", []), by.get("two_stacks", [])
    for array, size in (("head", "2 * LEVELS"), *((c, "CURSOR") for c in ("lo", "hi", "spare", "right"))):
        e.line(f"{array} = np.empty({size}, np.int64)")
    e.line("pieces = np.empty((PIECES, 3), np.int64)")
    for part in (*parts, *stacks):
        for prefix in "fsmb":
            for variable, code in zip(variables(part, prefix), part.identity()):
                e.line(f"{variable} = {code}")
    e.line(f"errors, j, at_once = 0, first, {AT_ONCE}")
    with e.block("while j < order.size:"):
        e.line("k = keys[order[j]]")
        e.line("since = begin_to_read(clock, limit)")
        e.line("read_head(heads, k, head)")
        e.line("err, q, known, last_low, last_high = 0, j, False, 0, 0")
        e.line("front, front_from, back, back_to, middle = -1, 0, -1, 0, -1")
        with e.block("while q < order.size and q < j + at_once and keys[order[q]] == k:"):
            e.line("i = order[q]")
            e.line("q += 1")
            _one(e, parts, by, moving, stacks)
            states = {p.index: variables(p, "f") for p in parts}
            for j, result in enumerate(layout.results):
                output(e, j, result, layout, states)
        with e.block("if was_reused(clock, since):"):
            e.line("at_once = max(1, at_once >> 1)")
            e.line("if limit[0] != NEVER:")
            e.line("    break")
        with e.block("else:"):
            e.line("errors |= err")
            e.line("j = q")
    outputs = [name for j in range(len(layout.results)) for name in (f"o{j}", f"w{j}")]
    parameters = [
        "order", "keys", "low", "high", "at", "most", "prevailing", "heads", "nodes", "rows", "entries",
        "elements", "suffixes", "clock", "limit", "texts", "first", *outputs,
    ]  # fmt: skip
    signature = f"def run({', '.join(parameters)}):"
    source = "\n".join([BLOCKS, FIND, "", "@kernel", signature, *e.lines, "    return j, errors", ""])
    functions = {name: any_kernel(f) for name, f in e.functions.items()}
    return AnswerKernel(load(source, **functions).run, source)


def _one(
    e: Emitter, parts: list[PartCode], by: dict[str, list[PartCode]], moving: list[PartCode],
    stacks: list[PartCode],
) -> None:  # fmt: skip
    """Emit code that aggregates interval `i` into the partials `f`."""
    e.line("walked = known and most < 0 and last_low <= low[i] <= high[i] and last_high <= high[i]")
    with e.block("if walked and (is_far(rows, hi, high[i]) or is_far(rows, lo, low[i] - 1)):"):
        e.line("walked = False")
    with e.block("if walked:"):
        _walk(e, moving)
    with e.block("if not walked:"):
        e.line("on = known and last_low <= low[i]")
        e.line("high_on = known and last_low <= last_high <= high[i]")
        e.line("back_too = prevailing and most >= 0")
        e.line("find_interval(rows, nodes, head, low[i], high[i], back_too, lo, hi, on, high_on)")
        with e.block("if most >= 0:"):
            e.line("nearest(rows, nodes, head, lo, hi, at[i], most, spare, right)")
        if moving:
            _fold(e, moving, "s", "lo", "hi")
    e.line("known, last_low, last_high = most < 0, low[i], high[i]")
    for part in moving:
        for to, code in zip(variables(part, "f"), variables(part, "s")):
            e.line(f"{to} = {code}")
    if stacks:
        _stacks(e, stacks)
    if "tree" in by:
        _fold(e, by["tree"], "f", "lo", "hi")
    if "rows" in by:
        _all_rows(e, by["rows"])
    with e.block("if prevailing and most < 0:"):
        e.line("copy_cursor(spare, lo)")
        with e.block("if retreat(rows, nodes, head, spare):"):
            e.line("r = spare[PLACE] + spare[ITEM]")
            _take(e, parts, "f", "r")


def _take(e: Emitter, parts: list[PartCode], prefix: str, at: str, array: str = "elements") -> None:
    step(e, parts, prefix, lambda p, state: p.combine(e, state, read(e, p, at, array)))


def _walk(e: Emitter, moving: list[PartCode]) -> None:
    """Emit code that moves both cursors forward, row by row, and sets `walked` to False if it is too far."""
    e.line("steps = 0")
    with e.block("while not at_end(hi) and rows[hi[PLACE] + hi[ITEM], 0] <= high[i]:"):
        with e.block(f"if steps == {WALK}:"):
            e.line("walked = False")
            e.line("break")
        e.line("steps += 1")
        if moving:
            e.line("r = hi[PLACE] + hi[ITEM]")
            _take(e, moving, "s", "r")
        e.line("advance(rows, nodes, head, hi)")
    with e.block("while walked and not same_place(lo, hi) and rows[lo[PLACE] + lo[ITEM], 0] < low[i]:"):
        with e.block(f"if steps == {WALK}:"):
            e.line("walked = False")
            e.line("break")
        e.line("steps += 1")
        if moving:
            e.line("r = lo[PLACE] + lo[ITEM]")
            step(e, moving, "s", lambda p, state: p.inverse(e, state, read(e, p, "r")))
        e.line("advance(rows, nodes, head, lo)")


def _fold(
    e: Emitter, parts: list[PartCode], prefix: str, low: str, high: str, inner: bool = False
) -> None:
    """Emit code that folds what is between two cursors; with `inner`, without the leaves that they are in."""
    reset(e, parts, prefix)
    e.line(f"count = pieces_between(nodes, head, {low}, {high}, pieces)")
    with e.block("for p in range(1, count - 1):" if inner else "for p in range(count):"):
        with e.block("if pieces[p, 0] == 0:"), e.block("for r in range(pieces[p, 1], pieces[p, 2]):"):
            _take(e, parts, prefix, "r")
        with e.block("else:"), e.block("for r in range(pieces[p, 1], pieces[p, 2]):"):
            _take(e, parts, prefix, "r", "entries")
            e.line("err |= nodes[r, META] >> FAILED & 255")


def _stacks(e: Emitter, parts: list[PartCode]) -> None:
    """Emit code that folds the interval from suffixes, a middle, and a running partial."""
    with e.block("if not walked or lo[PLACE] == hi[PLACE]:"):
        _fold(e, parts, "f", "lo", "hi")
    with e.block("else:"):
        reset(e, parts, "f")
        with e.block("if front != lo[PLACE] or lo[ITEM] < front_from:"):
            reset(e, parts, "m")
            e.line("t = lo[ITEMS] - 1")
            with e.block("while t >= lo[ITEM]:"):
                e.line("r = lo[PLACE] + t")
                _take(e, parts, "m", "r")
                for part in parts:
                    for name, variable in zip(part.names, variables(part, "m")):
                        e.line(f"suffixes[t].{name} = {variable}")
                e.line("t -= 1")
            e.line("front, front_from, middle = lo[PLACE], lo[ITEM], -1")
        with e.block("if back != hi[PLACE] or hi[ITEM] < back_to:"):
            reset(e, parts, "b")
            e.line("back, back_to, middle = hi[PLACE], 0, -1")
        with e.block("while back_to < hi[ITEM]:"):
            e.line("r = back + back_to")
            _take(e, parts, "b", "r")
            e.line("back_to += 1")
        with e.block("if middle < 0:"):
            _fold(e, parts, "m", "lo", "hi", inner=True)
            e.line("middle = 1")
        e.line("t = lo[ITEM]")
        with e.block("if t < lo[ITEMS]:"):
            _take(e, parts, "f", "t", "suffixes")
        step(e, parts, "f", lambda p, state: p.combine(e, state, variables(p, "m")))
        step(e, parts, "f", lambda p, state: p.combine(e, state, variables(p, "b")))


def _all_rows(e: Emitter, parts: list[PartCode]) -> None:
    """Emit code that folds the rows between the cursors one by one."""
    reset(e, parts, "f")
    e.line("copy_cursor(spare, lo)")
    with e.block("while True:"):
        e.line("last = hi[ITEM] if spare[PLACE] == hi[PLACE] else spare[ITEMS]")
        with e.block("for r in range(spare[PLACE] + spare[ITEM], spare[PLACE] + last):"):
            _take(e, parts, "f", "r")
        e.line("if spare[PLACE] == hi[PLACE] or at_end(spare):")
        e.line("    break")
        e.line("spare[ITEM] = spare[ITEMS] - 1")
        e.line("advance(rows, nodes, head, spare)")
