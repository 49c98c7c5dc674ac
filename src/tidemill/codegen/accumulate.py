"""The inner loop of window aggregates: filter, find the pane, add the row to its partial.

Where windows reach back over a known number of panes, the panes seen last have a *plane* each: a
record for every key, side by side, so that rows that come about in order work on little memory. A row
of a pane whose place is taken by another one *spills* the record there to a list, unless no window
needs it any more, and starts a new one. In-order data therefore touches one record a row, and
disorder costs only spills, which are combined later.

Otherwise records go to the list at once, in the order of their first rows, and for each key it is
known which one is its *newest*. Nothing is ever wrong, whatever the order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tidemill.aggregates.layout import Layout
from tidemill.codegen.algebra import PartCode
from tidemill.codegen.columns import Columns
from tidemill.codegen.expressions import Emitter, Value
from tidemill.codegen.modules import load
from tidemill.core.time import FARTHEST
from tidemill.expr.nodes import Node
from tidemill.jit.kernel import any_kernel

CHOSEN = 1024
"""Rows that are filtered at once."""


@dataclass(frozen=True)
class AccumulateKernel:
    """`run(rows, *columns, kid, shift, *grid, places, needed, spill, count, rank, *kept, filled)`.

    `rows` are the rows to take; `grid` is the start of all windows, and origin and size of the panes;
    `kid >> shift` is where their key is in `places`: in each of a power of two of planes, or in the
    list of newest records. Panes below `needed` may be forgotten. `kept` are the buffers of the parts
    that keep rows (kid, pane, one for each argument); `filled` holds how many rows each has. Returns
    `(count, first_pane, last_pane, before_start, err)`.
    """

    run: Callable[..., tuple[int, int, int, int, int]]
    source: str


@functools.lru_cache(maxsize=512)
def accumulate_kernel(
    columns: Columns,
    predicates: tuple[Node, ...],
    attribute: Node,
    layout: Layout,
    args: tuple[tuple[Node, ...], ...],
    fixed: tuple[int, ...],
    kept: tuple[int, ...],
    keyed: bool,
    has_start: bool,
    unit_pane: bool,
    by_plane: bool,
) -> AccumulateKernel:
    """`args` are the arguments of each part; `fixed` parts go into records, `kept` keep rows."""
    e = Emitter(columns.schema, columns.loads(), indent=1)
    with _rows_that_pass(e, predicates):
        time = e.emit(attribute)
        _find_place(e, time, keyed, has_start, unit_pane)
        _open_record(e, layout, fixed, by_plane)
        for index in fixed:
            _accumulate(e, PartCode(index, layout.parts[index]), args[index])
        for position, index in enumerate(kept):
            _keep(e, args[index], index, position)
    buffers = []
    for index in kept:
        buffers += [f"k{index}", f"p{index}"]
        buffers += [f"x{index}_{j}" for j in range(len(args[index]))]
    parameters = ", ".join(
        ["rows", *columns.parameters, "kid", "shift", "start", "origin", "pane", "places", "needed", "spill",
         "count", "rank", *buffers, "filled"]
    )  # fmt: skip
    source = "\n".join(
        [
            "@kernel", f"def run({parameters}):", "    err = 0", "    before = 0",
            "    first = INT_MAX", "    last = INT_MIN", "    mask = places.shape[0] - 1",
            "    p = 0", "    begin = 0", *e.lines, "    return count, first, last, before, err", "",
        ]
    )  # fmt: skip
    functions = {name: any_kernel(f) for name, f in e.functions.items()}
    return AccumulateKernel(load(source, **functions).run, source)


@contextmanager
def _rows_that_pass(e: Emitter, predicates: tuple[Node, ...]) -> Iterator[None]:
    """The loop over the rows for which all predicates hold."""
    if not predicates or any(e.can_fail(p) for p in predicates):
        with e.block("for j in range(rows.size):"):
            e.line("i = rows[j]")
            for predicate in predicates:
                e.line(f"if not ({e.truth(predicate)}):")
                e.line("    continue")
            yield
        return
    # Rows that pass are noted first, some hundred at a time: that costs no mispredicted branch.
    e.line(f"chosen = np.empty({CHOSEN}, np.uint32)")
    with e.block(f"for b in range(0, rows.size, {CHOSEN}):"):
        e.line("m = 0")
        with e.block(f"for j in range(b, min(b + {CHOSEN}, rows.size)):"):
            e.line("i = rows[j]")
            passed = " and ".join(e.truth(p) for p in predicates)
            e.line("chosen[m] = i")
            e.line(f"m += np.int64({passed})")
        with e.block("for j in range(m):"):
            e.line("i = chosen[j]")
            yield


def _find_place(e: Emitter, time: Value, keyed: bool, has_start: bool, unit_pane: bool) -> None:
    """Pane and key of a row; rows that have none are counted and left out."""
    if time.null is not None:
        e.line(f"if {time.null}:")
        e.line("    err |= NULL_TIME")
        e.line("    continue")
    # First of all: so far away, differences of times wrap around.
    e.line(f"if outside({time.code}, {-FARTHEST}, {2 * FARTHEST + 1}):")
    e.line("    err |= FAR_TIME")
    e.line("    continue")
    if has_start:
        e.line(f"if {time.code} < start:")
        e.line("    before += 1")
        e.line("    continue")
    e.line(f"t = {time.code} - origin")
    if unit_pane:
        e.line("p = t")
    else:  # neighbours are of one pane, mostly, and division is slow
        with e.block("if outside(t, begin, pane):"):
            e.line("p = t // pane")
            e.line("begin = wrap_mul(p, pane)")
    # Unsigned, because Numba looks whether other indices count from the end.
    e.line("k = np.uint64(kid[i] >> shift)" if keyed else "k = np.uint64(0)")


def _open_record(e: Emitter, layout: Layout, fixed: tuple[int, ...], by_plane: bool) -> None:
    if by_plane:
        e.line("r = places[np.uint64(p & mask), k]")
        fresh = "if r.pane != p:"
    else:
        e.line("s = places[k]")
        e.line("r = spill[s]")
        fresh = "if s < 0 or r.pane != p:"
    with e.block(fresh):
        e.line("last = max(last, p)")
        e.line("first = min(first, p)")
        if by_plane:
            e.line("if r.pane >= needed:")
            e.line("    spill[count] = r")
            e.line("    count += 1")
        else:
            e.line("r = spill[count]")
            e.line("places[k] = count")
            e.line("count += 1")
        e.line("r.kid = k")
        e.line("r.pane = p")
        for index in fixed:
            part = PartCode(index, layout.parts[index])
            for name, code in zip(part.names, part.identity()):
                e.line(f"r.{name} = {code}")


def with_arguments(
    e: Emitter, nodes: tuple[Node, ...], step: Callable[[list[Value]], None]
) -> None:
    """Emit a step over arguments; rows in which one is null are skipped."""
    args = [e.emit(a) for a in nodes]
    flags = [f"{v.code} < 0" if v.type.kind == "string" else v.null for v in args]
    missing = list(dict.fromkeys(f for f in flags if f is not None))
    if not missing:
        step(args)
        return
    with e.block(f"if not ({' or '.join(missing)}):"):
        step(args)


def _accumulate(e: Emitter, part: PartCode, nodes: tuple[Node, ...]) -> None:
    def step(args: list[Value]) -> None:
        part.take(e, [f"r.{name}" for name in part.names], args)

    with_arguments(e, nodes, step)


def _keep(e: Emitter, nodes: tuple[Node, ...], index: int, position: int) -> None:
    def step(args: list[Value]) -> None:
        e.line(f"q = filled[{position}]")
        e.line(f"k{index}[q] = k")
        e.line(f"p{index}[q] = p")
        for j, arg in enumerate(args):
            e.line(f"x{index}_{j}[q] = {arg.code}")
        e.line(f"filled[{position}] = q + 1")

    with_arguments(e, nodes, step)
