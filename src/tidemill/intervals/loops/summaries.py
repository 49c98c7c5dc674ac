"""Generate the loop that computes the partials of leaves and nodes of the time-travel index."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.aggregates.layout import Layout
from tidemill.codegen.algebra import PartCode
from tidemill.codegen.expressions import Emitter
from tidemill.codegen.fold import read, reset, step, variables
from tidemill.codegen.modules import load
from tidemill.core.schema import Schema
from tidemill.jit.kernel import any_kernel

BLOCKS = "from tidemill.intervals.loops.blocks import *"


@dataclass(frozen=True)
class SummaryKernel:
    """`run(touched, count, nodes, entries, elements, texts)`: computes the partials of touched entries.

    `entries` are the records of `nodes`, and `elements` those of rows. Errors are kept with an entry: they
    count only where it is part of an answer.
    """

    run: Callable[..., None]
    source: str


@functools.lru_cache(maxsize=512)
def summary_kernel(layout: Layout) -> SummaryKernel:
    parts = [PartCode(j, part) for j, part in enumerate(layout.parts)]
    e = Emitter(Schema(()), {}, indent=1)
    e.line("level, more = 0, True")
    with e.block("while more:"):
        e.line("level, more = level + 1, False")
        with e.block("for j in range(count):"):
            e.line("if touched[j, 0] != level:")
            e.line("    more |= touched[j, 0] > level")
            e.line("    continue")
            e.line("to = touched[j, 1]")
            e.line("meta = nodes[to, META]")
            e.line("if not meta >> STALE & 1:")
            e.line("    continue")
            e.line("err = 0")
            reset(e, parts, "s")
            e.line("first = nodes[to, AT]")
            e.line("last = first + (meta & COUNT)")
            with e.block("if level == 1:"), e.block("for q in range(first, last):"):
                step(e, parts, "s", lambda p, state: p.combine(e, state, read(e, p, "q")))
            with e.block("else:"), e.block("for q in range(first + (meta >> SKIP & COUNT), last):"):
                step(e, parts, "s", lambda p, state: p.combine(e, state, read(e, p, "q", "entries")))
                e.line("err |= nodes[q, META] >> FAILED & 255")
            e.line("r = entries[to]")
            for part in parts:
                for name, variable in zip(part.names, variables(part, "s")):
                    e.line(f"r.{name} = {variable}")
            e.line("nodes[to, META] = (meta & ~(1 << STALE | 255 << FAILED)) | err << FAILED")
    source = "\n".join(
        [BLOCKS, "", "@kernel", "def run(touched, count, nodes, entries, elements, texts):", *e.lines, ""]
    )
    functions = {name: any_kernel(f) for name, f in e.functions.items()}
    return SummaryKernel(load(source, **functions).run, source)
