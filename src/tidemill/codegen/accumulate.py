"""The inner loop of window aggregates: filter, find the pane, add the row to its partial.

If windows cover a known number of panes, each recent pane has a *plane*: an array with a record for every
key, so that rows in approximate order touch little memory. If the record for a row's key holds another
pane, the kernel *spills* that record to a list, unless no window needs it any more, and starts a new one.
In-order data therefore touches one record per row. Disorder costs only spills, which are combined later.

If most keys have rows in every pane, planes are *dense*: a pane's first row starts the records of all keys,
one after the other. The loop then needs no branch that depends on a record, which would wait for memory.

Otherwise all records are in the list, in the order of their first rows, and an array holds the position
of each key's *newest* record. The result is correct for any order of rows.

Sessions have no panes. A record in the list *spans* rows of a key with gaps below that of the sessions.
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
from tidemill.codegen.row_loop import rows_that_pass
from tidemill.core.time import FARTHEST
from tidemill.expr.nodes import Node
from tidemill.jit.kernel import any_kernel

BLOCK = 256
"""Without a key, so many rows are accumulated at once if all are in the same pane."""


@dataclass(frozen=True)
class LoopShape:
    """What the generated loop depends on besides the query's expressions."""

    keyed: bool
    has_start: bool
    unit_pane: bool
    """Whether each instant is a pane."""
    store: str
    """Where records are: `planes`, `dense` planes, a `list`, or a list of `spans` of sessions."""
    picked: bool
    """Whether `rows` is an array of row numbers."""


@dataclass(frozen=True)
class AccumulateKernel:
    """`run(rows, *columns, kid, shift, *grid, places, tags, needed, spill, count, texts, *kept, filled)`.

    `rows` are the rows to read, or their number if all are read. `grid` is the start of all windows, and the
    origin and size of the panes; for spans, the gap is in place of the size. `tags` has the pane of each
    dense plane.
    `places` has the planes, a power of two, or the positions of the newest records; `kid >> shift` is the
    index of a key in it. Panes below `needed` may be evicted. `kept` are the buffers of the parts that
    keep rows (kid, pane, one for each argument); `filled` has the number of rows in each. Returns
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
    shape: LoopShape,
) -> AccumulateKernel:
    """Generate a kernel. `args` are the arguments of each part; `fixed` parts have records, `kept` rows."""
    e = Emitter(columns.schema, columns.loads(), indent=1)
    rows = rows_that_pass(e, predicates, "rows", shape.picked)
    # Without a key, consecutive rows are mostly in the same record.
    plain = shape.store == "planes" and not (shape.keyed or shape.picked or predicates or kept)
    if plain and not shape.unit_pane and not e.can_fail(attribute):
        rows = _rows_between_panes(e, attribute, layout, args, fixed, shape.has_start)
    with rows:
        _find_pane(e, e.emit(attribute), shape)
        if shape.store == "dense":
            _open_plane(e, layout, fixed)
        # Unsigned, because Numba checks signed indices for negative values.
        e.line("k = np.uint64(kid[i] >> shift)" if shape.keyed else "k = np.uint64(0)")
        _OPEN[shape.store](e, layout, fixed)
        for index in fixed:
            _accumulate(e, PartCode(index, layout.parts[index]), args[index])
        for position, index in enumerate(kept):
            _keep(e, args[index], index, position)
    buffers = []
    for index in kept:
        buffers += [f"k{index}", f"p{index}"]
        buffers += [f"x{index}_{j}" for j in range(len(args[index]))]
    parameters = ", ".join(
        ["rows", *columns.parameters, "kid", "shift", "start", "origin", "pane", "places", "tags", "needed",
         "spill", "count", "texts", *buffers, "filled"]
    )  # fmt: skip
    source = "\n".join(
        [
            "@kernel", f"def run({parameters}):", "    err = 0", "    before = 0",
            "    first = INT_MAX", "    last = INT_MIN", "    mask = places.shape[0] - 1",
            # No row is in the pane at the beginning of time.
            "    p = INT_MIN", "    begin = INT_MIN", "    at = np.uint64(0)", "    own = False",
            *e.lines, "    return count, first, last, before, err", "",
        ]
    )  # fmt: skip
    functions = {name: any_kernel(f) for name, f in e.functions.items()}
    return AccumulateKernel(load(source, **functions).run, source)


@contextmanager
def _rows_between_panes(
    e: Emitter, attribute: Node, layout: Layout, args: tuple[tuple[Node, ...], ...], fixed: tuple[int, ...],
    has_start: bool,
) -> Iterator[None]:  # fmt: skip
    """Open a loop over the rows that are not in a block of rows of the current pane.

    The partials of such a block are accumulated in local variables, which the CPU holds in registers.
    """
    with e.block(f"for b in range(0, rows, {BLOCK}):"):
        e.line(f"stop = min(b + {BLOCK}, rows)")
        e.line("r = places[np.uint64(p & mask), np.uint64(0)]")
        with e.block("if r.pane == p:"):
            e.line("inside = True")
            with e.block("for j in range(b, stop):"):
                e.line("i = np.uint64(j)")
                _check_inside(e, e.emit(attribute), has_start)
            with e.block("if inside:"):
                names = [name for index in fixed for name in PartCode(index, layout.parts[index]).names]
                for name in names:
                    e.line(f"f_{name} = r.{name}")
                with e.block("for j in range(b, stop):"):
                    e.line("i = np.uint64(j)")
                    for index in fixed:
                        _accumulate(e, PartCode(index, layout.parts[index]), args[index], "f_")
                for name in names:
                    e.line(f"r.{name} = f_{name}")
                e.line("continue")
        with e.block("for j in range(b, stop):"):
            e.line("i = np.uint64(j)")
            yield


def _check_inside(e: Emitter, time: Value, has_start: bool) -> None:
    """Emit code that notes, without a branch, whether a row is in the current pane."""
    if time.null is not None:
        e.line(f"inside &= not ({time.null})")
    if has_start:
        e.line(f"inside &= {time.code} >= start")
    e.line(f"inside &= not {_is_far(time)}")
    e.line(f"inside &= not outside({time.code} - origin, begin, pane)")


def _is_far(time: Value) -> str:
    return f"outside({time.code}, {-FARTHEST}, {2 * FARTHEST + 1})"


def _find_pane(e: Emitter, time: Value, shape: LoopShape) -> None:
    """Emit the pane of a row; rows with an invalid time or before the start are skipped."""
    if time.null is not None:
        e.line(f"if {time.null}:")
        e.line("    err |= NULL_TIME")
        e.line("    continue")
    # Checked first: beyond this range, differences of times would overflow.
    e.line(f"if {_is_far(time)}:")
    e.line("    err |= FAR_TIME")
    e.line("    continue")
    if shape.has_start:
        e.line(f"if {time.code} < start:")
        e.line("    before += 1")
        e.line("    continue")
    e.line(f"t = {time.code} - origin")
    if shape.unit_pane:
        e.line("p = t")
    else:  # division is slow, and consecutive rows are mostly in the same pane
        with e.block("if outside(t, begin, pane):"):
            e.line("p = t // pane")
            e.line("begin = wrap_mul(p, pane)")
            if shape.store == "dense":
                e.line("own = False")


def _open_in_planes(e: Emitter, layout: Layout, fixed: tuple[int, ...]) -> None:
    e.line("r = places[np.uint64(p & mask), k]")
    with e.block("if r.pane != p:"):
        _reach(e)
        _spill_record(e)
        _start_record(e, layout, fixed)


def _open_plane(e: Emitter, layout: Layout, fixed: tuple[int, ...]) -> None:
    """Emit code that starts the records of all keys, unless the plane has a later pane."""
    with e.block("if not own:"):
        e.line("at = np.uint64(p & mask)")
        with e.block("if tags[at] < p:"):
            with e.block("for q in range(places.shape[1]):"):
                e.line("r = places[at, np.uint64(q)]")
                with e.block("if r.pane != p:"):
                    _spill_record(e)
                    _start_record(e, layout, fixed, "q", "INT_MIN")
            e.line("tags[at] = p")
        e.line("own = tags[at] == p")
        _reach(e)


def _open_in_dense_planes(e: Emitter, layout: Layout, fixed: tuple[int, ...]) -> None:
    with e.block("if own:"):
        e.line("r = places[at, k]")
        e.line("r.pane = p")
    with e.block("else:"):  # an old pane
        e.line("r = spill[count]")
        e.line("count += 1")
        _start_record(e, layout, fixed)


def _open_in_list(e: Emitter, layout: Layout, fixed: tuple[int, ...]) -> None:
    e.line("s = places[k]")
    e.line("r = spill[s]")
    with e.block("if s < 0 or r.pane != p:"):
        _reach(e)
        e.line("r = spill[count]")
        e.line("places[k] = count")
        e.line("count += 1")
        _start_record(e, layout, fixed)


def _open_span(e: Emitter, layout: Layout, fixed: tuple[int, ...]) -> None:
    e.line("s = places[k]")
    e.line("r = spill[s]")
    with e.block("if s < 0 or p - r.end >= pane or r.pane - p >= pane:"):
        _reach(e)
        e.line("if s < 0 or p > r.end:")
        e.line("    places[k] = count")
        e.line("r = spill[count]")
        e.line("count += 1")
        _start_record(e, layout, fixed)
        e.line("r.end = p")
    with e.block("elif p > r.end:"):
        e.line("r.end = p")
    with e.block("elif p < r.pane:"):
        e.line("r.pane = p")


_OPEN = {
    "planes": _open_in_planes, "dense": _open_in_dense_planes, "list": _open_in_list, "spans": _open_span,
}  # fmt: skip


def _reach(e: Emitter) -> None:
    e.line("last = max(last, p)")
    e.line("first = min(first, p)")


def _spill_record(e: Emitter) -> None:
    e.line("if r.pane >= needed:")
    e.line("    spill[count] = r")
    e.line("    count += 1")


def _start_record(
    e: Emitter, layout: Layout, fixed: tuple[int, ...], key: str = "k", pane: str = "p"
) -> None:
    e.line(f"r.kid = {key}")
    e.line(f"r.pane = {pane}")
    for index in fixed:
        part = PartCode(index, layout.parts[index])
        for name, code in zip(part.names, part.identity()):
            e.line(f"r.{name} = {code}")


def with_arguments(
    e: Emitter, nodes: tuple[Node, ...], step: Callable[[list[Value]], None]
) -> None:
    """Emit a step over arguments; rows with a null argument are skipped."""
    args = [e.emit(a) for a in nodes]
    flags = [f"{v.code} < 0" if v.type.kind == "string" else v.null for v in args]
    missing = list(dict.fromkeys(f for f in flags if f is not None))
    if not missing:
        step(args)
        return
    with e.block(f"if not ({' or '.join(missing)}):"):
        step(args)


def _accumulate(e: Emitter, part: PartCode, nodes: tuple[Node, ...], place: str = "r.") -> None:
    """Emit code that adds a row to the fields of a part; their names begin with `place`."""

    def step(args: list[Value]) -> None:
        part.take(e, [f"{place}{name}" for name in part.names], args)

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
