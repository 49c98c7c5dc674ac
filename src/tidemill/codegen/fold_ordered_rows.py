"""Generate a kernel that computes partials from sorted rows, for order-dependent aggregates."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.aggregates.layout import Layout
from tidemill.codegen.algebra import PartCode
from tidemill.codegen.expressions import Emitter, Value
from tidemill.codegen.modules import load
from tidemill.core.schema import Schema
from tidemill.jit.kernel import any_kernel


@dataclass(frozen=True)
class RefoldKernel:
    """`run(n, offsets, elements, texts, *args) -> err`: rows `offsets[i]:offsets[i+1]` → element i."""

    run: Callable[..., int]
    source: str


@functools.lru_cache(maxsize=512)
def refold_kernel(layout: Layout, index: int) -> RefoldKernel:
    e = Emitter(Schema(()), {})
    part = PartCode(index, layout.parts[index])
    names = [f"s{j}" for j in range(len(part.names))]
    for name, code in zip(names, part.identity()):
        e.line(f"{name} = {code}")
    with e.block("for q in range(offsets[i], offsets[i + 1]):"):
        args = [
            Value(e.assign(f"x{j}[q]", kind).code, None, kind)
            for j, kind in enumerate(part.part.types)
        ]
        after = part.accumulate(e, names, args)
        kept = [e.assign(code, kind).code for code, (_, kind) in zip(after, part.part.columns)]
        for name, code in zip(names, kept):
            e.line(f"{name} = {code}")
    for field, name in zip(part.names, names):
        e.line(f"elements[i].{field} = {name}")
    arguments = "".join(f", x{j}" for j in range(len(part.part.types)))
    source = "\n".join(
        [
            "@kernel", f"def run(n, offsets, elements, texts{arguments}):", "    err = 0",
            "    for i in range(n):", *e.lines, "    return err", "",
        ]
    )  # fmt: skip
    functions = {name: any_kernel(f) for name, f in e.functions.items()}
    return RefoldKernel(load(source, **functions).run, source)
