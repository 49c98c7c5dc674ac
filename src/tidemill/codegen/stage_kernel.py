"""Generate a loop that filters and projects; rows that pass are written contiguously, in order."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidemill.codegen.columns import Columns
from tidemill.codegen.expressions import Emitter
from tidemill.codegen.modules import load
from tidemill.expr.nodes import Column, Node
from tidemill.jit.kernel import any_kernel


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
    emitter = Emitter(columns.schema, columns.loads())
    copies = all(isinstance(o, Column) and o.name not in columns.nullable for o in outputs)
    if predicates and copies and not any(emitter.can_fail(p) for p in predicates):
        nullable = _branch_free(emitter, columns, predicates, outputs, index)
    else:
        nullable = _branching(emitter, predicates, outputs, index)
    written = [
        name for j, n in enumerate(nullable) for name in ((f"o{j}", f"w{j}") if n else (f"o{j}",))
    ]
    parameters = ", ".join(["n", *columns.parameters, "index", *written])
    source = "\n".join(
        [
            "@kernel", f"def run({parameters}):", "    err = 0", "    m = 0",
            "    for i in range(n):", *emitter.lines, "    return m, err", "",
        ]
    )  # fmt: skip
    functions = {name: any_kernel(f) for name, f in emitter.functions.items()}
    return StageKernel(load(source, **functions).run, nullable, source)


def _branch_free(
    emitter: Emitter, columns: Columns, predicates: tuple[Node, ...], outputs: tuple[Any, ...],
    index: bool,
) -> tuple[bool, ...]:  # fmt: skip
    # Every row is written and the position advances only for rows that pass: no branch to mispredict.
    passed = " and ".join(emitter.truth(p) for p in predicates)
    loads = columns.loads()
    for j, output in enumerate(outputs):
        emitter.line(f"o{j}[m] = {loads[output.name].code}")
    if index:
        emitter.line("index[m] = i")
    emitter.line(f"m += np.int64({passed})")
    return (False,) * len(outputs)


def _branching(
    emitter: Emitter, predicates: tuple[Node, ...], outputs: tuple[Node, ...], index: bool
) -> tuple[bool, ...]:
    for predicate in predicates:
        emitter.line(f"if not ({emitter.truth(predicate)}):")
        emitter.line("    continue")
    nullable = []
    for j, output in enumerate(outputs):
        value = emitter.emit(output)
        emitter.line(f"o{j}[m] = {value.code}")
        if value.null is not None:
            emitter.line(f"w{j}[m] = not {value.null}")
        nullable.append(value.null is not None)
    if index:
        emitter.line("index[m] = i")
    emitter.line("m += 1")
    return tuple(nullable)
