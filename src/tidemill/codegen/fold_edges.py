"""Generate the loop that aggregates what holds: rows are added where they start and taken out where they end.

This needs an exact inverse of every part, and allows lifetimes of any kind (paper 000, Deaccumulate).
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
from tidemill.jit.kernel import any_kernel


@dataclass(frozen=True)
class EdgesKernel:
    """`run(n, begin, enter, leave, leaving, elements, texts, *outputs) -> err`.

    At instant `i`, the elements up to `enter[i]` have started, and `leave[i]` of those in the order of
    `leaving` have ended. Where a key begins, `begin[i]` is its first element, and otherwise negative.
    """

    run: Callable[..., int]
    source: str


@functools.lru_cache(maxsize=512)
def edges_kernel(layout: Layout, fixed: tuple[int, ...], results: tuple[int, ...]) -> EdgesKernel:
    e = Emitter(Schema(()), {})
    parts = [PartCode(index, layout.parts[index]) for index in fixed]
    states = {part.index: variables(part, "s") for part in parts}
    with e.block("if begin[i] >= 0:"):
        e.line("a = begin[i]")
        e.line("b = begin[i]")
        reset(e, parts, "s")
    with e.block("while a < enter[i]:"):
        step(e, parts, "s", lambda p, state: p.combine(e, state, read(e, p, "a")))
        e.line("a += 1")
    with e.block("while b < leave[i]:"):
        e.line("q = leaving[b]")
        step(e, parts, "s", lambda p, state: p.inverse(e, state, read(e, p, "q")))
        e.line("b += 1")
    for j, r in enumerate(results):
        output(e, j, layout.results[r], layout, states)
    prologue = ["a = 0", "b = 0"]
    for part in parts:
        prologue += [f"{v} = {code}" for v, code in zip(variables(part, "s"), part.identity())]
    outputs = [name for j in range(len(results)) for name in (f"o{j}", f"w{j}")]
    parameters = ", ".join(
        ["n", "begin", "enter", "leave", "leaving", "elements", "texts", *outputs]
    )
    source = "\n".join(
        [
            "@kernel", f"def run({parameters}):", "    err = 0", *("    " + p for p in prologue),
            "    for i in range(n):", *e.lines, "    return err", "",
        ]
    )  # fmt: skip
    functions = {name: any_kernel(f) for name, f in e.functions.items()}
    return EdgesKernel(load(source, **functions).run, source)
