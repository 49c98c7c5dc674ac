"""Compile scalar expressions to Spark columns, by the rules of `expr.functions`.

Columns are in the internal form of `spark.expr.values`. Overflow is an error only if Spark plans in ANSI
mode, which it decides when a DataFrame is made: build inside `with settings.ansi(spark):`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemill.core.errors import InternalError, UnsupportedError, UserError
from tidemill.core.schema import Schema
from tidemill.core.types import TIMESTAMP, DataType, to_arrow
from tidemill.expr.evaluate import call_udf
from tidemill.expr.functions import DAY, FUNCTIONS
from tidemill.expr.nodes import Call, Cast, Column, Literal, Node, Udf
from tidemill.spark.expr.functions import (
    COMPARE,
    FLIPPED,
    SPARK_FUNCTIONS,
    Term,
    cast,
    outside_java,
)
from tidemill.spark.expr.values import instant, literal, named, read, spark_type, without_ticks
from tidemill.spark.workers import arrow_function

SPARK_LEVELS = 99
"""Spark applies its rules at most a hundred times, and some handle one level of an expression at a time."""
SPARK_NODES = 10_000


class SparkExpressions:
    """Compiles resolved expressions over one DataFrame.

    `raw` has the Spark type of each column of the DataFrame. Columns that are already in the internal
    form, as after an earlier step of Tidemill, are not converted. `names` maps columns to their names in
    the DataFrame, if these differ.
    """

    def __init__(
        self, schema: Schema, raw: Mapping[str, T.DataType], names: Mapping[str, str] | None = None
    ) -> None:
        self.schema, self.raw = schema, raw
        self._names = {} if names is None else names

    def column(self, node: Node, guard: SparkColumn | None = None) -> SparkColumn:
        """Compile a resolved expression to the internal form, for the rows for which `guard` is true."""
        if node.levels > SPARK_LEVELS:
            what = f"an expression of {node.levels} levels; Spark supports {SPARK_LEVELS}"
            raise UnsupportedError("spark", what, instead="run it in process")
        if node.size > SPARK_NODES:  # Spark writes an expression out many times
            what = f"an expression of {node.size:,} parts; Spark supports {SPARK_NODES:,}"
            raise UnsupportedError("spark", what, instead="run it in process")
        return self._term(node, guard).column

    def leaf(self, name: str) -> SparkColumn:
        """A column of the DataFrame in the internal form."""
        kind = self.schema.type_of(name, step="spark")
        if name not in self.raw:
            raise UserError(
                "spark", expected=f"a column {name!r} of {kind!r}", got=f"columns {list(self.raw)}"
            )
        return read(self.reference(name), self.raw[name], kind, name)

    def reference(self, name: str) -> SparkColumn:
        """The raw column of a name."""
        return named(self._names.get(name, name))

    def _term(self, node: Node, guard: SparkColumn | None) -> Term:
        """Compile a node; `guard` is true for rows on which Python may run, see `_python`."""
        if isinstance(node, Column):
            return Term(self.leaf(node.name), self.schema.type_of(node.name, step="spark"), node)
        if isinstance(node, Literal):
            return Term(literal(node.value, node.type), node.type, node)
        if isinstance(node, Cast):
            return Term(cast(self._term(node.arg, guard), node), node.to, node)
        if isinstance(node, Udf):
            columns = [self._term(a, guard).column for a in node.args]
            return Term(_python(node.function, node.returns, columns, guard), node.returns, node)
        if isinstance(node, Call):
            return self._call(node, guard)
        raise InternalError(f"no Spark form for {node!r}")

    def _call(self, node: Call, guard: SparkColumn | None) -> Term:
        args: list[Term] = []
        for position, arg in enumerate(node.args):
            args.append(self._term(arg, self._guarded(node, args, position, guard)))
        result = FUNCTIONS[node.function].types(tuple(a.type for a in args))[1]
        if guard is not None and outside_java(node):
            args[0] = args[0]._replace(column=F.when(guard, args[0].column))
        native = self._native(node)
        if native is None:
            native = SPARK_FUNCTIONS[node.function](*args)
        return Term(native, result, node)

    def _guarded(
        self, node: Call, before: list[Term], position: int, guard: SparkColumn | None
    ) -> SparkColumn | None:
        """The guard of an argument that need not be evaluated for every row."""
        below = node.args[position].walk()
        if position == 0 or not any(isinstance(n, Udf) or outside_java(n) for n in below):
            return guard
        first = before[0].column
        if node.function == "if_else":
            taken = F.coalesce(first, F.lit(False))
            mine = taken if position == 1 else ~taken
        elif node.function == "and":
            mine = F.coalesce(first, F.lit(True))
        elif node.function == "or":
            mine = ~F.coalesce(first, F.lit(False))
        else:
            return guard
        return mine if guard is None else guard & mine

    def _native(self, node: Call) -> SparkColumn | None:
        """A condition on a raw column in Spark's own types, so that file readers can skip data by it."""
        subject, *others = node.args if node.args else (None,)
        flipped = FLIPPED.get(node.function)
        if isinstance(subject, Literal) and flipped and isinstance(others[0], Column):
            return self._native(Call(flipped, (others[0], subject)))
        if not isinstance(subject, Column) or subject.name not in self.raw:
            return None
        column, kind = self.reference(subject.name), self.raw[subject.name]
        if node.function in ("is_null", "is_not_null"):
            return column.isNull() if node.function == "is_null" else column.isNotNull()
        values = [o.value for o in others if isinstance(o, Literal) and o.type == TIMESTAMP]
        if None in values or len(values) != len(others) or not values:
            return None
        if node.function == "is_in":
            given = [instant(v, kind) for v in values]
            return None if any(g is None for g in given) else column.isin(*given)
        if node.function not in FLIPPED:
            return None
        ticks = values[0]
        if isinstance(kind, T.DateType) and ticks % DAY:
            # Dates compare as midnights: a date is below a time of day unless it is a later date.
            same = {"lt": "le", "ge": "gt"}.get(node.function, node.function)
            if same in ("eq", "ne"):
                return None
            return COMPARE[same](column, instant(ticks - ticks % DAY, kind))
        value = instant(ticks, kind)
        return None if value is None else COMPARE[node.function](column, value)


# --- opaque functions -----------------------------------------------------------------------------


def _python(
    function: Callable[..., Any],
    returns: DataType,
    args: list[SparkColumn],
    guard: SparkColumn | None,
) -> SparkColumn:
    # Spark runs Python before the rest of a projection, on every row. So rows whose branch is not
    # taken get a null argument, for which the function is not called.
    if not args:
        args, function = [F.lit(0)], functools.wraps(function)(_without_argument(function))
    if guard is not None:
        args = [F.when(guard, args[0]), *args[1:]]
    return arrow_function(_row_by_row(function, returns), spark_type(returns), args)


def _without_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _: function()


def _row_by_row(function: Callable[..., Any], returns: DataType) -> Callable[..., pa.Array]:
    kind = to_arrow(without_ticks(returns))

    def run(*columns: pa.Array) -> pa.Array:
        rows = zip(*(c.to_pylist() for c in columns))
        return pa.array([call_udf(function, returns, list(row)) for row in rows], kind)

    return run
