"""Generate the loop over the rows of a batch that pass filters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidemill.codegen.expressions import Emitter
from tidemill.expr.nodes import Node

CHOSEN = 1024
"""The number of rows that are filtered at once."""


@contextmanager
def rows_that_pass(
    e: Emitter, predicates: tuple[Node, ...], rows: str, picked: bool = False, first: str = "0"
) -> Iterator[None]:
    """Open the loop over the rows `i` for which all predicates are true.

    `rows` is the parameter with the number of rows or, if `picked`, with an array of row numbers. The loop
    begins at the row `first`, which must be 0 if `picked`.
    """
    size = f"{rows}.size" if picked else rows
    # Unsigned, because Numba checks signed indices for negative values.
    row = f"{rows}[j]" if picked else "np.uint64(j)"
    if not predicates or any(e.can_fail(p) for p in predicates):
        with e.block(f"for j in range({first}, {size}):"):
            e.line(f"i = {row}")
            for predicate in predicates:
                e.line(f"if not ({e.truth(predicate)}):")
                e.line("    continue")
            yield
        return
    # First collect the rows of a block that pass: this loop has no branch to mispredict.
    e.line(f"chosen = np.empty({CHOSEN}, np.uint32)")
    with e.block(f"for b in range({first}, {size}, {CHOSEN}):"):
        e.line("passing = 0")
        with e.block(f"for j in range(b, min(b + {CHOSEN}, {size})):"):
            e.line(f"i = {row}")
            passed = " and ".join(e.truth(p) for p in predicates)
            e.line("chosen[passing] = i")
            e.line(f"passing += np.int64({passed})")
        with e.block("for j in range(passing):"):
            e.line("i = chosen[j]")
            yield
