"""Prepare batches for the kernels of an aggregate: columns, ids of keys, and the kernel for their layout.

Window aggregates and wheels begin with the same steps: apply filters and expressions, look up keys, and
run the kernel that was compiled for the layout of the columns. An `Intake` performs these steps. It holds
no rows and no keys, so copies of an aggregate can share it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.aggregates.layout import Layout
from tidemill.codegen.columns import Columns
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.expr.nodes import Column, Node
from tidemill.kernels.keys import KeyIndex
from tidemill.local.expressions import Expressions, Places, evaluate

Ints = npt.NDArray[np.int64]
Kernel = TypeVar("Kernel")
_NO_KEYS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class LoopNodes:
    """The expressions that the loop of a kernel computes, over the columns it reads."""

    predicates: tuple[Node, ...]
    attribute: Node | None
    args: tuple[tuple[Node, ...], ...]
    """The arguments of each part of the layout."""


class Intake(Generic[Kernel]):
    """Provides the parameters and the kernel for each batch of an aggregate's input.

    `schema` is the schema of the batches. `outputs` maps columns that aggregates, keys and the windowing
    attribute refer to onto expressions over the batch; any other column is a column of the batch.
    `make(columns, nodes, *variant)` compiles a kernel; it is called once for each layout and variant.

    >>> from tidemill.aggregates.basic import sum
    >>> from tidemill.aggregates.layout import layout
    >>> from tidemill.core.schema import schema
    >>> from tidemill.expr.fluent import col
    >>> rows = schema({"k": "int64", "v": "int64"})
    >>> parts = layout((("s", sum(col.v)),), rows)
    >>> intake = Intake(rows, parts, lambda columns, nodes: nodes.args, keys=["k"])
    >>> batch = pa.record_batch({"k": [7, 9, 7], "v": [1, 2, 3]})
    >>> columns, args, failure = intake.prepare(batch)
    >>> args
    [array([1, 2, 3])]
    >>> intake.key_ids(batch, KeyIndex(rows.select(["k"])))
    array([0, 1, 0])
    >>> intake.kernel(columns) is intake.kernel(columns)
    True
    """

    def __init__(
        self, schema: Schema, layout: Layout, make: Callable[..., Kernel], *, keys: Sequence[str] = (),
        predicates: tuple[Node, ...] = (), attribute: Node | None = None,
        outputs: Mapping[str, Node] | None = None,
    ) -> None:  # fmt: skip
        self._schema, self._make = schema, make
        named = outputs or {}

        def over_batch(node: Node) -> Node:
            return node.transform(lambda n: named.get(n.name, n) if isinstance(n, Column) else n)

        self._keys = [over_batch(Column(k)) for k in keys]
        plain = [node.name for node in self._keys if isinstance(node, Column)]
        self._places = Places(plain) if len(plain) == len(self._keys) else None
        """Where the keys are, if all are columns of the batches."""
        args = [[over_batch(a) for a in part.part.args] for part in layout.parts]
        first = [*predicates, *([] if attribute is None else [attribute])]
        self.expressions = Expressions([*first, *(a for own in args for a in own)], schema)
        nodes, at, by_part = self.expressions.nodes, len(first), []
        for own in args:
            by_part.append(nodes[at : at + len(own)])
            at += len(own)
        given = None if attribute is None else nodes[len(predicates)]
        self._nodes = LoopNodes(nodes[: len(predicates)], given, tuple(by_part))
        self._kernels: dict[Any, tuple[Columns, Kernel]] = {}

    def prepare(self, batch: pa.RecordBatch) -> tuple[Columns, list[Any], UserError | None]:
        """Return the layout of a kernel's columns, the columns, and the error of a failed row, if any."""
        return self.expressions.prepare(batch)

    def key_ids(self, batch: pa.RecordBatch, keys: KeyIndex) -> Ints:
        """Return the key id of each row and assign ids to new keys; empty if the query has no keys."""
        return keys.encode(self.key_columns(batch)) if self._keys else _NO_KEYS

    def key_columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the key columns of a batch."""
        if self._places is not None:
            return [batch.column(at) for at in self._places.of(batch)]
        return [evaluate(node, batch, self._schema) for node in self._keys]

    def kernel(self, columns: Columns, *variant: Any) -> Kernel:
        """Return the kernel for a layout of columns, compiling it on first use."""
        key = (id(columns), *variant)  # `prepare` returns one object for each layout
        found = self._kernels.get(key)
        if found is None:
            found = self._kernels[key] = (columns, self._make(columns, self._nodes, *variant))
        return found[1]
