"""Compile traced functions to Spark columns, which run in the JVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from tidemill.core.schema import Schema
from tidemill.core.types import DataType
from tidemill.expr.fluent import lit
from tidemill.expr.typing import type_of
from tidemill.spark.dia.elements import columns_of
from tidemill.spark.dia.tracing import (
    INSIDE,
    Out,
    Traced,
    TracedStruct,
    parts_of,
    reachable,
    repeated,
)
from tidemill.spark.expr.compile import SparkExpressions
from tidemill.spark.expr.schemas import user_type
from tidemill.spark.expr.values import literal, named, output


class ElementColumns(SparkExpressions):
    """Expressions over the columns of elements, and over the fields inside them."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema, {n: user_type(t) for n, t in schema})

    @classmethod
    def of(cls, *kinds: DataType, prefixes: Sequence[str] = ("",)) -> ElementColumns:
        """Make one for elements whose columns start with these prefixes."""
        fields = [f for k, p in zip(kinds, prefixes) for f in reachable(k, p).fields]
        return cls(Schema(tuple(fields)))

    def reference(self, name: str) -> SparkColumn:
        first, *inside = name.split(INSIDE)
        column = named(first)
        for field in inside:
            column = column.getField(field)
        return column

    def user(self, out: Out) -> SparkColumn:
        """A part of a traced function as a column of a user type."""
        whole = repeated(out, self.schema)
        if whole is not None:  # already of a user type; a null struct stays null
            return self.reference(whole)
        if isinstance(out, TracedStruct):
            return F.struct(*(self.user(p).alias(n) for n, p in zip(out.names, out.parts)))
        return output(self.column(out), type_of(out, self.schema))

    def element(self, traced: Traced, prefix: str = "") -> list[SparkColumn]:
        """The columns of the element that a traced function returns."""
        names = columns_of(traced.type).names
        return [self.user(p).alias(prefix + n) for n, p in zip(names, parts_of(traced.out))]


def constant(element: Any, kind: DataType) -> list[SparkColumn]:
    """The columns of a constant element that fits its type; None is null in each column."""
    if element is None:
        return [F.lit(None).cast(user_type(t)).alias(n) for n, t in columns_of(kind)]
    values = [element]
    if kind.kind == "struct":
        values = [element[n] for n in kind.names] if isinstance(element, dict) else list(element)
    return [_constant(v, t).alias(n) for v, (n, t) in zip(values, columns_of(kind))]


def _constant(value: Any, kind: DataType) -> SparkColumn:
    if value is None:
        return F.lit(None).cast(user_type(kind))
    if kind.kind == "list":
        items = F.array(*(_constant(v, kind.of[0]) for v in value))
        return items.cast(user_type(kind))
    if kind.kind == "struct":
        given = [value[n] for n in kind.names] if isinstance(value, dict) else list(value)
        parts = zip(kind.names, given, kind.of)
        return F.struct(*(_constant(v, t).alias(n) for n, v, t in parts))
    if kind.kind == "binary":
        return F.lit(value)
    node: Any = lit(value).node
    return output(literal(node.value, kind), kind)
