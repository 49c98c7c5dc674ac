"""Evaluate expressions over a batch, partly in Arrow and partly in generated code.

Generated loops compute numbers, bools and instants. Expressions on strings or lists, and Python
functions that Numba cannot compile, are computed first as whole columns; the loop reads those columns
like any other.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.codegen.columns import Columns
from tidemill.codegen.expressions import COMPILED
from tidemill.codegen.kernel_errors import raise_for
from tidemill.codegen.stage_kernel import stage_kernel
from tidemill.core.batch import to_rows
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.types import DataType, to_arrow
from tidemill.expr.evaluate import call_udf
from tidemill.expr.evaluate import evaluate as define
from tidemill.expr.nodes import (
    Call,
    Cast,
    Column,
    Literal,
    Node,
    Udf,
    columns_of,
    udf_name,
)  # fmt: skip
from tidemill.expr.typing import type_of
from tidemill.jit.user_functions import known, refusal, runs_in_python
from tidemill.kernels.arrow import allocate, build, validity, values
from tidemill.kernels.strings import call, cast

LEVELS = 64
"""Maximum depth of an expression compiled as one loop: Numba recurses over its blocks in Python."""


class Places:
    """Where some columns are in batches. Batches of one schema follow each other: it is looked up once.

    >>> Places(["b"]).of(pa.record_batch({"a": [1], "b": [2]}))
    (1,)
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._known: tuple[pa.Schema, tuple[int, ...]] = (pa.schema([]), ())
        """One object, as several threads may use it."""

    def of(self, batch: pa.RecordBatch) -> tuple[int, ...]:
        known, places = self._known
        if self._names and not batch.schema.equals(known):
            places = tuple(map(batch.schema.get_field_index, self._names))
            if -1 in places:  # also if there are two
                raise KeyError(self._names[places.index(-1)])
            self._known = (batch.schema, places)
        return places


class Expressions:
    """Several expressions over one schema, ready for a kernel.

    `nodes` are the expressions that a kernel compiles. Their columns are named `$0, $1, …` and are
    computed before the kernel runs.
    """

    def __init__(self, nodes: Sequence[Node], schema: Schema, *, levels: int = LEVELS) -> None:
        self._source, self._levels = schema, levels
        # For few rows, users' functions are not compiled, so they are apart from the loop.
        self.nodes, self._columns = _divided(tuple(nodes), schema, levels, known())
        self.schema = Schema(tuple((name, type_of(node, schema)) for node, name in self._columns.items()))
        self._texts = {name for name, kind in self.schema.fields if kind.kind == "string"}
        self._places = Places([node.name for node in self._columns if isinstance(node, Column)])
        self._numbers = not self._texts and self.plain is not None
        """Whether all columns are numbers of the batch."""
        none: frozenset[str] = frozenset()
        self._without_nulls = Columns(self.schema, none, none)
        self._layouts = {(none, none): self._without_nulls}

    @property
    def plain(self) -> tuple[str, ...] | None:
        """The columns that a kernel reads if all are columns of the batch, otherwise None."""
        names = tuple(node.name for node in self._columns if isinstance(node, Column))
        return names if len(names) == len(self._columns) else None

    def prepare(self, batch: pa.RecordBatch) -> tuple[Columns, list[Any], UserError | None]:
        """Return the columns that the nodes read, as parameters of a kernel.

        Batches with the same layout of columns get the same `Columns` object. A column of strings is an Arrow
        array; who calls the kernel passes the id of its first row instead. The error is to be raised only
        if the loop reads a row for which a column failed.
        """
        found = [batch.column(at) for at in self._places.of(batch)]
        if self._numbers:  # a small batch is soon ready
            for array in found:
                if array.null_count:
                    break
            else:
                return self._without_nulls, [values(array) for array in found], None
        failure: UserError | None = None
        nullable: set[str] = set()
        bad: set[str] = set()
        args: list[Any] = []
        read = iter(found)
        for node, name in self._columns.items():
            failed = None
            if isinstance(node, Column):
                array = next(read)
            else:
                array, failed, reason = self._computed(node, batch)
                failure = reason or failure
            args.append(array if name in self._texts else values(array))
            valid = validity(array)
            if valid is not None:
                nullable.add(name)
                args.append(valid)
            if failed is not None:
                bad.add(name)
                args.append(failed)
        given = frozenset(nullable), frozenset(bad)
        columns = self._layouts.get(given)
        if columns is None:
            columns = self._layouts[given] = Columns(self.schema, *given)
        return columns, args, failure

    def _computed(
        self, node: Node, batch: pa.RecordBatch
    ) -> tuple[pa.Array, Any, UserError | None]:
        """Return a column and the rows in which it failed; the loop raises only if it reads one of them."""
        try:
            return _eagerly(node, batch, self._source, self._levels), None, None
        except UserError as failure:
            found, failed = [], np.zeros(batch.num_rows, dtype=np.uint8)
            for i, row in enumerate(_rows(node, batch, self._source)):
                try:
                    found.append(define(node, row, self._source))
                except UserError:
                    found.append(None)
                    failed[i] = 1
            kind = to_arrow(type_of(node, self._source))
            return pa.array(found, type=kind), failed, failure


@functools.lru_cache(maxsize=512)
def _divided(
    nodes: tuple[Node, ...], schema: Schema, levels: int, of: int
) -> tuple[tuple[Node, ...], dict[Node, str]]:
    """Return what a loop computes of expressions, and the columns that are computed before it, by name."""
    columns: dict[Node, str] = {}

    def divided(root: Node) -> Node:
        def apart(node: Node) -> Node | None:
            """Return the literal or column that replaces a node in the loop; None if the loop computes it."""
            alone = node is not root and node.levels % levels == 0
            kind = type_of(node, schema)
            if isinstance(node, Literal) and kind.is_fixed:
                return node
            before = alone or not kind.is_fixed or not compiles(node, schema)
            if isinstance(node, Column) or before:
                return Column(columns.setdefault(node, f"${len(columns)}"))
            return None

        return root.fold(lambda node, children: node.with_children(children), apart)

    return tuple(divided(n) for n in nodes), columns


def compiles(node: Node, schema: Schema) -> bool:
    """Return whether generated code can compute this node, whatever computes its arguments."""
    types = [type_of(c, schema) for c in node.children()]
    if isinstance(node, Udf):
        return not refusal(node.function, tuple(types), node.returns)
    if not all(t.is_fixed for t in types):
        return False
    return not isinstance(node, Call) or node.function in COMPILED


def row_by_row(node: Node, schema: Schema) -> list[str]:
    """List the functions of an expression that run as plain Python, each with the reason."""
    return [
        f"{udf_name(n.function)}: {why}"
        for n in node.walk()
        if isinstance(n, Udf)
        and (why := refusal(n.function, tuple(type_of(a, schema) for a in n.args), n.returns))
    ]


def evaluate(
    node: Node, batch: pa.RecordBatch, schema: Schema, *, levels: int = LEVELS
) -> pa.Array:
    """Evaluate one expression over a batch and return an Arrow array."""
    if isinstance(node, Column):
        return batch.column(node.name)
    try:
        return _eagerly(node, batch, schema, levels)
    except UserError:
        # Whole columns also compute branches that no row takes, so the error may not be real.
        found = [define(node, row, schema) for row in _rows(node, batch, schema)]
        return pa.array(found, type=to_arrow(type_of(node, schema)))


def _eagerly(root: Node, batch: pa.RecordBatch, schema: Schema, levels: int) -> pa.Array:
    def whole(node: Node) -> Any:
        """Return a node's value if it does not depend on other columns computed here, else None."""
        if isinstance(node, Literal):
            return node
        if isinstance(node, Column):
            return batch.column(node.name)
        kind = type_of(node, schema)
        if not kind.is_fixed or not compiles(node, schema):
            return None
        return _compiled(node, kind, batch, Expressions([node], schema, levels=levels))

    def column(value: Any) -> pa.Array:
        return repeated(value, batch.num_rows) if isinstance(value, Literal) else value

    def computed(node: Node, args: list[Any]) -> Any:
        if isinstance(node, Udf):
            types = tuple(type_of(a, schema) for a in node.args)
            runs_in_python(node.function, types, node.returns)
            return _called(node, [column(a) for a in args], batch.num_rows)
        if isinstance(node, Cast):
            return cast(column(args[0]), type_of(node.arg, schema), node.to, node.strict)
        assert isinstance(node, Call)
        given = [
            a.value if isinstance(a, Literal) and a.value is not None else column(a) for a in args
        ]
        if all(isinstance(a, Literal) for a in args):  # Arrow needs one array to know the length
            given[0] = column(args[0])
        return call(node.function, *given)

    return column(root.fold(computed, whole))


def _rows(node: Node, batch: pa.RecordBatch, schema: Schema) -> list[dict[str, Any]]:
    """Return the rows of a batch, with only the columns that an expression reads."""
    names = tuple(n for n in schema.names if n in columns_of(node))
    if not names:
        return [{} for _ in range(batch.num_rows)]
    return to_rows([batch.select(list(names))], schema.select(names))


def repeated(constant: Literal, n: int) -> pa.Array:
    """Return a column with the same value in each row, in memory that other columns may share.

    >>> from tidemill.core.types import INT64
    >>> repeated(Literal(7, INT64), 2).to_pylist()
    [7, 7]
    """
    if constant.type.kind == "null":
        return pa.nulls(n)
    kind = to_arrow(constant.type)
    if not constant.type.is_fixed or n > _SHARED:
        return pa.repeat(pa.scalar(constant.value, type=kind), n)
    # By its text, because 0.0 and -0.0 are equal.
    return _shared(repr(constant.value), constant, kind, max(_FEW, 1 << (n - 1).bit_length()))[:n]


_FEW = 1 << 12
_SHARED = 1 << 20
"""Constant columns of so many rows share memory, at most."""


@functools.lru_cache(maxsize=16)
def _shared(text: str, constant: Literal, kind: pa.DataType, n: int) -> pa.Array:
    return pa.repeat(pa.scalar(constant.value, type=kind), n)


def _compiled(
    node: Node, kind: DataType, batch: pa.RecordBatch, expressions: Expressions
) -> pa.Array:
    columns, args, failure = expressions.prepare(batch)
    kernel = stage_kernel(columns, (), expressions.nodes, False)
    n = batch.num_rows
    out, valid = allocate(kind, n), np.empty(n, dtype=np.uint8)
    outputs = [out, valid] if kernel.nullable[0] else [out]
    _, err = kernel.run(n, *args, np.empty(0, dtype=np.int64), *outputs)
    raise_for(err, str(node), failure)
    return build(out, valid if kernel.nullable[0] else None, to_arrow(kind))


def _called(node: Udf, args: list[pa.Array], rows: int) -> pa.Array:
    columns = [plain(a) for a in args]
    if not columns:
        results = [call_udf(node.function, node.returns, []) for _ in range(rows)]
    else:
        results = [call_udf(node.function, node.returns, list(row)) for row in zip(*columns)]
    return pa.array(results, type=to_arrow(node.returns))


def plain(array: pa.Array) -> list[Any]:
    """Convert an array to Python values; instants and durations become ticks."""
    if pa.types.is_timestamp(array.type) or pa.types.is_duration(array.type):
        array = array.cast(pa.int64())
    return array.to_pylist()  # type: ignore[no-any-return]
