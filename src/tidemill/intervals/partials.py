"""What the index keeps of each row: its partial, for the parts of a layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import pyarrow as pa

from tidemill.aggregates.algebra import Algebra, NamedLower
from tidemill.aggregates.layout import Layout, StatePart
from tidemill.codegen.algebra import numpy_type
from tidemill.codegen.columns import Columns
from tidemill.codegen.kernel_errors import raise_for
from tidemill.codegen.lift_rows import LiftKernel, lift_kernel
from tidemill.codegen.state_plan import refusal as not_compiled
from tidemill.core.schema import Schema
from tidemill.expr.nodes import Column, Node
from tidemill.kernels.arrow import validity, values
from tidemill.kernels.texts import Texts


def refusal(layout: Layout) -> str:
    """Return why an index cannot keep partials of these aggregates; empty if it can.

    >>> from tidemill.aggregates.basic import sum
    >>> from tidemill.aggregates.holistic import median
    >>> from tidemill.aggregates.layout import layout
    >>> from tidemill.core.schema import schema
    >>> from tidemill.expr.fluent import col
    >>> rows = schema({"x": "float64"})
    >>> refusal(layout((("s", sum(col.x)),), rows))
    ''
    >>> refusal(layout((("m", median(col.x)),), rows))
    'quantile(col.x, q=0.5) needs all rows'
    """
    for result in layout.results:
        if isinstance(result.lower, NamedLower):
            return f"{result.shown} needs all rows"
    for index, part in enumerate(layout.parts):
        if not isinstance(part.part.algebra, Algebra):
            return f"{part.part} needs all rows"
        if not part.part.algebra.commutative:
            return f"{part.part} depends on the order of rows"
        if why := not_compiled(layout, index):
            return f"{part.part} cannot be compiled: {why}"
    return ""


def partial_fields(layout: Layout) -> list[tuple[str, str]]:
    """Return the fields of a record with the partials of all parts."""
    return [(name, numpy_type(kind)) for part in layout.parts for name, kind in part.columns]


def folding(layout: Layout, fold: str) -> tuple[str, ...]:
    """Return how each part is folded: as `fold` says, or as its algebra allows."""
    if fold != "incremental":
        return (fold,) * len(layout.parts)
    return tuple("subtract" if _subtracts(part) else "two_stacks" for part in layout.parts)


def _subtracts(part: StatePart) -> bool:
    assert part.form is not None
    return part.form.subtracts


class Lifting:
    """Turns the arguments of aggregates into partials."""

    def __init__(self, layout: Layout) -> None:
        nodes = dict.fromkeys(a for part in layout.parts for a in part.part.args)
        self.arguments: tuple[Node, ...] = tuple(nodes)
        """The expressions over a row whose values `into` reads."""
        places = {node: Column(f"${j}") for j, node in enumerate(self.arguments)}
        types = {a: t for part in layout.parts for a, t in zip(part.part.args, part.types)}
        self._schema = Schema(tuple((places[node].name, types[node]) for node in self.arguments))
        self._layout, self._kernels = layout, dict[frozenset[str], LiftKernel]()
        self._args = tuple(tuple(places[a] for a in part.part.args) for part in layout.parts)
        kinds = (field for part in layout.parts for field in part.columns)
        self.text_fields = [name for name, kind in kinds if kind.kind == "string"]

    def into(self, records: npt.NDArray[Any], arguments: Sequence[pa.Array], texts: Texts) -> None:
        """Write the partial of each row, given a column for each of `arguments`."""
        nullable, given = set(), []
        for (name, kind), column in zip(self._schema, arguments):
            given.append(texts.hold(column) if kind.kind == "string" else values(column))
            if (valid := validity(column)) is not None:
                nullable.add(name)
                given.append(valid)
        nulls = frozenset(nullable)
        if nulls not in self._kernels:  # the cache of `lift_kernel` takes longer to look in
            self._kernels[nulls] = lift_kernel(Columns(self._schema, nulls), self._layout, self._args)
        err = self._kernels[nulls].run(len(records), *given, texts.table, records)
        raise_for(err, "interval join")
        if self.text_fields:
            texts.settle([records[name] for name in self.text_fields])
