"""Generate a kernel that combines the sorted spilled partials with the same key and pane."""

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
    """`run(order, n, spill, out, rank) -> (distinct, err)`; `order` sorts by key, then pane."""

    run: Callable[..., tuple[int, int]]
    source: str


@functools.lru_cache(maxsize=512)
def combine_kernel(layout: Layout, fixed: tuple[int, ...]) -> CombineKernel:
    e = Emitter(Schema(()), {})
    e.line("r = spill[order[i]]")
    with e.block("if m > 0 and out[m - 1].kid == r.kid and out[m - 1].pane == r.pane:"):
        e.line("o = out[m - 1]")
        for index in fixed:
            part = PartCode(index, layout.parts[index])
            fields = list(part.part.columns)
            mine = [e.assign(f"o.{name}", kind).code for name, kind in fields]
            other = [e.assign(f"r.{name}", kind).code for name, kind in fields]
            for (name, _), code in zip(fields, part.combine(e, mine, other)):
                e.line(f"o.{name} = {code}")
    with e.block("else:"):
        e.line("out[m] = r")
        e.line("m += 1")
    source = "\n".join(
        [
            "@kernel", "def run(order, n, spill, out, rank):", "    err = 0", "    m = 0",
            "    for i in range(n):", *e.lines, "    return m, err", "",
        ]
    )  # fmt: skip
    functions = {name: any_kernel(f) for name, f in e.functions.items()}
    return CombineKernel(load(source, **functions).run, source)
