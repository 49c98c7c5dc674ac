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

    key: str
    """How a row finds its key: `none`, by `ids`, by value in a `direct` table, or in a `hashed` one."""
    has_start: bool
    unit_pane: bool
    """Whether each instant is a pane."""
    store: str
    """Where records are: `planes`, `dense` planes, a `list`, or a list of `spans` of sessions."""
    picked: bool
    """Whether `rows` is an array of row numbers."""


@dataclass(frozen=True)
class AccumulateKernel:
    """`run(rows, done, *columns, *key, *grid, places, marks, needed, spill, count, texts, *kept, filled)`.

    `rows` are the rows to read, or their number if all are read; the first `done` of them are skipped.
    `key` depends on `LoopShape.key`. By ids: `kid, shift`, where `kid >> shift` is the index of a row's key
    in the store. By value: the key column and what `IntIndex.in_loop` returns; the loop stops at the first
    row whose key is not in the index. `grid` is the start of all windows, and the origin and size of the
    panes; for spans, the gap is in place of the size. `places` has the planes, a power of two, or the
    positions of the newest records, by key. `marks` are two arrays: the pane of each plane that is dense, and
    which planes were used. Panes below `needed` may be evicted. `kept` are the buffers of the parts that keep
    rows (kid, pane, one for each argument); `filled` has the number of rows in each. Returns
    `(done, count, first_pane, last_pane, before_start, err)`.
    """

    run: Callable[..., tuple[int, int, int, int, int, int]]
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
    rows = rows_that_pass(e, predicates, "rows", shape.picked, "0" if shape.picked else "done")
    # Without a key, consecutive rows are mostly in the same record.
    keyed = shape.key != "none"
    plain = shape.store == "planes" and not (keyed or shape.picked or predicates or kept)
    if plain and not shape.unit_pane and not e.can_fail(attribute):
        rows = _rows_between_panes(e, attribute, layout, args, fixed, shape.has_start)
    with rows:
        _find_pane(e, e.emit(attribute), layout, fixed, shape)
        _FIND_KEY[shape.key](e)
        _OPEN[shape.store](e, layout, fixed)
        for index in fixed:
            accumulate_row(e, PartCode(index, layout.parts[index]), args[index])
        for position, index in enumerate(kept):
            _keep(e, args[index], index, position)
    buffers = []
    for index in kept:
        buffers += [f"k{index}", f"p{index}"]
        buffers += [f"x{index}_{j}" for j in range(len(args[index]))]
    parameters = ", ".join(
        ["rows", "done", *columns.parameters, *_KEY_PARAMETERS[shape.key], "start", "origin", "pane",
         "places", "marks", "needed", "spill", "count", "texts", *buffers, "filled"]
    )  # fmt: skip
    source = "\n".join(
        [
            "@kernel", f"def run({parameters}):", "    err = 0", "    before = 0",
            "    first = INT_MAX", "    last = INT_MIN", "    mask = places.shape[0] - 1",
            "    tags, started = marks",
            # The current pane begins at `begin`; `span` is its size, or 0 while there is none.
            "    p = INT_MIN", "    begin = 0", "    span = 0", "    at = np.uint64(0)", "    own = False",
            *e.lines, f"    return {'rows.size' if shape.picked else 'rows'}, {_RETURNED}", "",
        ]
    )  # fmt: skip
    functions = {name: any_kernel(f) for name, f in e.functions.items()}
    return AccumulateKernel(load(source, **functions).run, source)


_RETURNED = "count, first, last, before, err"
_KEY_PARAMETERS = {
    "none": (), "ids": ("kid", "shift"), "direct": ("key", "table", "base"),
    "hashed": ("key", "slots", "values", "bits"),
}  # fmt: skip


def _no_key(e: Emitter) -> None:
    e.line("k = np.uint64(0)")


def _key_by_id(e: Emitter) -> None:
    # Unsigned, because Numba checks signed indices for negative values.
    e.line("k = np.uint64(kid[i] >> shift)")


def _key_in_table(e: Emitter) -> None:
    e.line("x = np.uint64(key[i]) - np.uint64(base)")
    e.line("if x >= np.uint64(table.size):")
    e.line(f"    return np.int64(i), {_RETURNED}")
    e.line("s = table[x]")
    _stop_at_new_key(e)


def _key_by_hash(e: Emitter) -> None:
    e.line("s = hashed_id(key[i], slots, values, bits)")
    _stop_at_new_key(e)


def _stop_at_new_key(e: Emitter) -> None:
    e.line("if s < 0:")
    e.line(f"    return np.int64(i), {_RETURNED}")
    e.line("k = np.uint64(s)")


_FIND_KEY = {"none": _no_key, "ids": _key_by_id, "direct": _key_in_table, "hashed": _key_by_hash}


@contextmanager
def _rows_between_panes(
    e: Emitter, attribute: Node, layout: Layout, args: tuple[tuple[Node, ...], ...], fixed: tuple[int, ...],
    has_start: bool,
) -> Iterator[None]:  # fmt: skip
    """Open a loop over the rows that are not in a block of rows of the current pane.

    The partials of such a block are accumulated in local variables, which the CPU holds in registers.
    """
    with e.block(f"for b in range(done, rows, {BLOCK}):"):
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
                        accumulate_row(e, PartCode(index, layout.parts[index]), args[index], "f_")
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
    e.line(f"inside &= not outside(wrap_sub({time.code}, origin), begin, span)")


def _is_far(time: Value) -> str:
    return f"outside({time.code}, {-FARTHEST}, {2 * FARTHEST + 1})"


def _find_pane(
    e: Emitter, time: Value, layout: Layout, fixed: tuple[int, ...], shape: LoopShape
) -> None:
    """Emit the pane of a row; rows with an invalid time or before the start are skipped."""
    if time.null is not None:
        e.line(f"if {time.null}:")
        e.line("    err |= NULL_TIME")
        e.line("    continue")
    if shape.unit_pane:
        _check_far(e, time)
    if shape.has_start:
        with e.block(f"if {time.code} < start:"):
            _check_far(e, time)
            e.line("before += 1")
            e.line("continue")
    e.line(f"t = wrap_sub({time.code}, origin)")
    if shape.unit_pane:
        e.line("p = t")
        if shape.store == "planes":
            _start_plane(e)
        return
    # Division is slow, and consecutive rows are mostly in the same pane. A time in it is not far, either.
    with e.block("if outside(t, begin, span):"):
        _check_far(e, time)
        e.line("p = t // pane")
        e.line("begin = wrap_mul(p, pane)")
        e.line("span = pane")
        if shape.store == "planes":
            _start_plane(e)
        elif shape.store == "dense":
            _open_plane(e, layout, fixed)
        # The other rows of some panes must come here, too: times in them may be far, or records spilled.
        again = f"outside(wrap_add(begin, origin), {-FARTHEST}, wrap_sub({2 * FARTHEST + 2}, pane))"
        e.line(f"if {again}{' or not own' if shape.store == 'dense' else ''}:")
        e.line("    span = 0")


def _check_far(e: Emitter, time: Value) -> None:
    """Emit code that skips a row whose time is so far away that windows around it would overflow."""
    e.line(f"if {_is_far(time)}:")
    e.line("    err |= FAR_TIME")
    e.line("    continue")


def _open_in_planes(e: Emitter, layout: Layout, fixed: tuple[int, ...]) -> None:
    e.line("r = places[np.uint64(p & mask), k]")
    with e.block("if r.pane != p:"):
        _reach(e)
        _spill_record(e)
        _start_record(e, layout, fixed)


def _start_plane(e: Emitter) -> None:
    """Emit code that marks all records of the plane as free, before the first row comes to it."""
    e.line("at = np.uint64(p & mask)")
    with e.block("if started[at] == 0:"):
        with e.block("for q in range(places.shape[1]):"):
            e.line("r = places[at, np.uint64(q)]")
            e.line("r.pane = INT_MIN")
        e.line("started[at] = 1")


def _open_plane(e: Emitter, layout: Layout, fixed: tuple[int, ...]) -> None:
    """Emit code that starts the records of all keys, unless the plane has a later pane."""
    _start_plane(e)
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


def accumulate_row(e: Emitter, part: PartCode, nodes: tuple[Node, ...], place: str = "r.") -> None:
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
