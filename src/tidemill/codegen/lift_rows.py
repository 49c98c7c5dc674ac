"""Generate the kernel that writes the partial of each row of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.aggregates.layout import Layout
from tidemill.codegen.accumulate import accumulate_row
from tidemill.codegen.algebra import PartCode
from tidemill.codegen.columns import Columns
from tidemill.codegen.expressions import Emitter
from tidemill.codegen.modules import load
from tidemill.codegen.row_loop import rows_that_pass
from tidemill.expr.nodes import Node
from tidemill.jit.kernel import any_kernel


@dataclass(frozen=True)
class LiftKernel:
    """`run(n, *columns, texts, rows) -> err`: row `i` of the columns → the partials of record `i`."""

    run: Callable[..., int]
    source: str


@functools.lru_cache(maxsize=512)
def lift_kernel(columns: Columns, layout: Layout, args: tuple[tuple[Node, ...], ...]) -> LiftKernel:
    """Generate a kernel. `args` are the arguments of each part; all parts must have fixed partials."""
    e = Emitter(columns.schema, columns.loads(), indent=1)
    with rows_that_pass(e, (), "n"):
        e.line("r = rows[i]")
        for index, own in enumerate(args):
            part = PartCode(index, layout.parts[index])
            for name, code in zip(part.names, part.identity()):
                e.line(f"r.{name} = {code}")
            accumulate_row(e, part, own)
    parameters = ", ".join(["n", *columns.parameters, "texts", "rows"])
    source = "\n".join(
        ["@kernel", f"def run({parameters}):", "    err = 0", *e.lines, "    return err", ""]
    )
    functions = {name: any_kernel(f) for name, f in e.functions.items()}
    return LiftKernel(load(source, **functions).run, source)
