"""Generate the loop that aggregates grid windows of a few panes straight from the planes of a store.

It gives what ranges of elements (`grid` in `kernels/window_ranges.py`) and a fold over them
(`codegen/fold.py`) give, without writing elements and ranges to memory first. Batches and spills decide which
of the two ways a query takes, so tests that vary these compare them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.aggregates.layout import Layout
from tidemill.codegen.algebra import PartCode
from tidemill.codegen.expressions import Emitter
from tidemill.codegen.fold import output, reset, step, variables
from tidemill.codegen.modules import load
from tidemill.core.schema import Schema
from tidemill.jit.kernel import any_kernel


@dataclass(frozen=True)
class PlaneWindowsKernel:
    """`run(planes, keys, panes, grid, state, texts, okid, owid, *outputs) -> (windows, err)`.

    `panes` are the first and the last pane to read; each has a plane of its own. `grid` is a
    `local.window_slides.Grid` as a plain tuple. `state` has the key and the window to begin
    with; the loop stops when the outputs are full, and notes there where to go on.
    """

    run: Callable[..., tuple[int, int]]
    source: str


@functools.lru_cache(maxsize=512)
def plane_windows_kernel(
    layout: Layout, fixed: tuple[int, ...], results: tuple[int, ...]
) -> PlaneWindowsKernel:
    """Generate a kernel for parts of fixed size, and results that are compiled."""
    e = Emitter(Schema(()), {}, indent=4)
    parts = [PartCode(index, layout.parts[index]) for index in fixed]
    reset(e, parts, "m")
    with e.block("for q in range(lo, hi):"):
        e.line("r = planes[np.uint64(held[np.uint64(q)] & mask), key]")
        step(e, parts, "m", lambda p, state: p.combine(e, state, _fields(e, p)))
    states = {part.index: variables(part, "m") for part in parts}
    for j, number in enumerate(results):
        output(e, j, layout.results[number], layout, states)
    outputs = [name for j in range(len(results)) for name in (f"o{j}", f"w{j}")]
    parameters = ", ".join(
        ["planes", "keys", "panes", "grid", "state", "texts", "okid", "owid", *outputs]
    )
    source = "\n".join(["@kernel", f"def run({parameters}):", *_BEFORE, *e.lines, *_AFTER, ""])
    functions = {name: any_kernel(f) for name, f in e.functions.items()}
    return PlaneWindowsKernel(load(source, **functions).run, source)


def _fields(e: Emitter, part: PartCode) -> list[str]:
    return [e.assign(f"r.{name}", kind).code for name, kind in part.part.columns]


_BEFORE = """\
    err = 0
    mask = planes.shape[0] - 1
    first, last = panes
    room = np.uint64(okid.size)
    begin, until, length, slide, shift, since = grid
    held = np.empty(last - first + 2, np.int64)
    # Indices are unsigned, because Numba checks signed ones for negative values.
    i = np.uint64(0)
    w = state[1]
    for k in range(state[0], keys):
        key = np.uint64(k)
        n = np.uint64(0)
        for p in range(max(first, since), last + 1):
            # Always write, and advance only for a match: there is no branch to mispredict.
            held[n] = p
            n += np.uint64(planes[np.uint64(p & mask), key].pane == p)
        lo = np.uint64(0)
        hi = np.uint64(0)
        if n > 0:
            w = max(max(w, begin), (held[0] - shift) // slide)
        while n > 0 and w <= until:
            if i == room:
                state[0] = k
                state[1] = w
                return np.int64(i), err
            end = shift + (w + 1) * slide
            while hi < n and held[hi] < end:
                hi += np.uint64(1)
            while lo < hi and held[lo] < end - length:
                lo += np.uint64(1)
            if lo < hi:
                okid[i] = k
                owid[i] = w""".splitlines()

_AFTER = """\
                i += np.uint64(1)
                w += 1
            elif hi == n:
                break
            else:  # an empty window: skip to the first window that can contain the next pane
                w = max(w + 1, (held[hi] - shift) // slide)
        w = INT_MIN
    state[0] = keys
    return np.int64(i), err""".splitlines()
