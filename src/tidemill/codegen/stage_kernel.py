"""Generate a loop that filters and projects; rows that pass are written contiguously, in order."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.codegen.columns import Columns
from tidemill.codegen.expressions import Emitter
from tidemill.codegen.modules import load
from tidemill.codegen.row_loop import rows_that_pass
from tidemill.expr.nodes import Column, Node
from tidemill.jit.kernel import any_kernel

FEW = 4
"""So few columns are copied for all rows, also those that do not pass."""


@dataclass(frozen=True)
class StageKernel:
    """`run(n, *columns, index, *outputs) -> (rows kept, err)`.

    `index` receives the positions of the rows kept; without `index` in `stage_kernel`, pass an empty array.
    Outputs are `o<j>`, followed by `w<j>` (validity) if `nullable[j]`.
    """

    run: Callable[..., tuple[int, int]]
    nullable: tuple[bool, ...]
    source: str


@functools.lru_cache(maxsize=512)
def stage_kernel(
    columns: Columns, predicates: tuple[Node, ...], outputs: tuple[Node, ...], index: bool
) -> StageKernel:
    emitter = Emitter(columns.schema, columns.loads(), indent=1)
    copies = [o for o in outputs if isinstance(o, Column) and o.name not in columns.nullable]
    if len(copies) == len(outputs) <= FEW and not any(emitter.can_fail(p) for p in predicates):
        nullable = _write_all(emitter, columns, predicates, copies, index)
    else:
        with rows_that_pass(emitter, predicates, "n"):
            nullable = _write(emitter, outputs, index)
    written = [
        name for j, n in enumerate(nullable) for name in ((f"o{j}", f"w{j}") if n else (f"o{j}",))
    ]
    parameters = ", ".join(["n", *columns.parameters, "index", *written])
    source = "\n".join(
        [
            "@kernel", f"def run({parameters}):", "    err = 0", "    m = 0",
            *emitter.lines, "    return m, err", "",
        ]
    )  # fmt: skip
    functions = {name: any_kernel(f) for name, f in emitter.functions.items()}
    return StageKernel(load(source, **functions).run, nullable, source)


def _write_all(
    e: Emitter, columns: Columns, predicates: tuple[Node, ...], outputs: list[Column], index: bool
) -> tuple[bool, ...]:
    """Emit a loop that writes every row and advances only for rows that pass: quickest for few columns."""
    loads = columns.loads()
    with e.block("for i in range(n):"):
        passed = " and ".join(e.truth(p) for p in predicates) or "True"
        for j, output in enumerate(outputs):
            e.line(f"o{j}[m] = {loads[output.name].code}")
        if index:
            e.line("index[m] = i")
        e.line(f"m += np.int64({passed})")
    return (False,) * len(outputs)


def _write(e: Emitter, outputs: tuple[Node, ...], index: bool) -> tuple[bool, ...]:
    """Emit code that writes the outputs of row `i`, and return which of them can be null."""
    nullable = []
    for j, output in enumerate(outputs):
        value = e.emit(output)
        e.line(f"o{j}[m] = {value.code}")
        if value.null is not None:
            e.line(f"w{j}[m] = not {value.null}")
        nullable.append(value.null is not None)
    if index:
        e.line("index[m] = i")
    e.line("m += 1")
    return tuple(nullable)
