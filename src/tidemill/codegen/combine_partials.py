"""Generate the kernels that combine partials with the same key and pane: of a sorted list, and of planes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.aggregates.layout import Layout
from tidemill.codegen.algebra import PartCode
from tidemill.codegen.expressions import Emitter
from tidemill.codegen.modules import load
from tidemill.core.schema import Schema
from tidemill.jit.kernel import any_kernel


@dataclass(frozen=True)
class CombineKernel:
    """`run(order, n, spill, out, texts, gap) -> (distinct, err)`; `order` sorts by key, then pane.

    Records that span sessions are combined if they are less than `gap` apart.
    """

    run: Callable[..., tuple[int, int]]
    source: str


@dataclass(frozen=True)
class MergeKernel:
    """`run(other, first, last, keys, ids, planes, needed, spill, count, texts) -> (count, err)`.

    Moves the records of some keys from the planes `other`, which have the panes `first..last`, to `planes`,
    and frees them there. `ids[k]` is the key in `planes` of the key `k` in `other`. Records below the pane
    `needed` are dropped.
    """

    run: Callable[..., tuple[int, int]]
    source: str


@functools.lru_cache(maxsize=512)
def combine_kernel(layout: Layout, fixed: tuple[int, ...], spans: bool = False) -> CombineKernel:
    e = Emitter(Schema(()), {})
    e.line("r = spill[order[i]]")
    same = "r.pane - out[m - 1].end < gap" if spans else "out[m - 1].pane == r.pane"
    with e.block(f"if m > 0 and out[m - 1].kid == r.kid and {same}:"):
        e.line("o = out[m - 1]")
        if spans:
            e.line("o.end = max(o.end, r.end)")
        _combine(e, layout, fixed)
    with e.block("else:"):
        e.line("out[m] = r")
        e.line("m += 1")
    source = "\n".join(
        [
            "@kernel", "def run(order, n, spill, out, texts, gap):", "    err = 0", "    m = 0",
            "    for i in range(n):", *e.lines, "    return m, err", "",
        ]
    )  # fmt: skip
    functions = {name: any_kernel(f) for name, f in e.functions.items()}
    return CombineKernel(load(source, **functions).run, source)


@functools.lru_cache(maxsize=512)
def merge_kernel(layout: Layout, fixed: tuple[int, ...]) -> MergeKernel:
    e = Emitter(Schema(()), {}, indent=3)
    e.line("k = np.uint64(keys[j])")
    e.line("r = other[p, k]")
    e.line("at = r.pane")
    with e.block("if at >= needed:"):
        e.line("m = np.uint64(at & mask)")
        e.line("to = np.uint64(ids[k])")
        e.line("o = planes[m, to]")
        with e.block("if o.pane == at:"):
            _combine(e, layout, fixed)
        with e.block("else:"):
            e.line("if o.pane >= needed:")
            e.line("    spill[count] = o")
            e.line("    count += 1")
            e.line("planes[m, to] = r")
            e.line("o.kid = to")
    e.line("r.pane = INT_MIN")
    source = "\n".join(
        [
            "@kernel", "def run(other, first, last, keys, ids, planes, needed, spill, count, texts):",
            "    err = 0", "    mask = planes.shape[0] - 1", "    turn = other.shape[0] - 1",
            "    for q in range(first, min(last, first + turn) + 1):", "        p = np.uint64(q & turn)",
            "        for j in range(keys.size):", *e.lines, "    return count, err", "",
        ]
    )  # fmt: skip
    functions = {name: any_kernel(f) for name, f in e.functions.items()}
    return MergeKernel(load(source, **functions).run, source)


def _combine(e: Emitter, layout: Layout, fixed: tuple[int, ...]) -> None:
    """Emit code that adds the record `r` to the record `o`."""
    for index in fixed:
        part = PartCode(index, layout.parts[index])
        fields = list(part.part.columns)
        mine = [e.assign(f"o.{name}", kind).code for name, kind in fields]
        other = [e.assign(f"r.{name}", kind).code for name, kind in fields]
        for (name, _), code in zip(fields, part.combine(e, mine, other)):
            e.line(f"o.{name} = {code}")
