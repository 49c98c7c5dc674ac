"""Operations on the index of elements: zip and zip_with_index (Table 3.3).

They take two passes: the first counts the elements of each partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame

from tidemill.core.errors import UserError
from tidemill.core.types import INT64
from tidemill.spark.dia.elements import VALUE, columns_of
from tidemill.spark.dia.operation import Operation, described, is_steady
from tidemill.spark.dia.partitions import (
    INDEX,
    every_index,
    indexed,
    side_by_side,
)
from tidemill.spark.dia.rows import RowFunction
from tidemill.spark.dia.tracing import Function
from tidemill.spark.expr.values import named
from tidemill.spark.private import partition_count

HOWS = ("error", "cut", "pad")


def zip_with_index(parent: Operation, function: Function | None = None, returns: Any = None) -> Operation:
    """Apply a function to the global index of each element and the element."""
    step = "zip_with_index"
    examples = lambda: list(enumerate(parent.head))
    prefixes = ("i.", "e.")
    called = RowFunction(
        function or _together, [INT64, parent.kind], prefixes, returns, examples, step=step
    )

    def build() -> DataFrame:
        df, _ = indexed(parent)
        columns = [named(n).alias(prefixes[1] + n) for n in columns_of(parent.kind).names]
        return called.on(df.select(named(INDEX).alias(f"i.{VALUE}"), *columns))

    return Operation(
        step, (parent,), called.kind, parent.session, build, settled=is_steady(called.function),
        **described(called.function),
    )  # fmt: skip


def _together(*elements: Any) -> Any:
    return elements


# --- zip ------------------------------------------------------------------------------------------


def zip_(
    parents: Sequence[Operation], function: Function | None = None, *, how: str = "error",
    returns: Any = None,
) -> Operation:  # fmt: skip
    """Apply a function to the elements at the same index."""
    if how not in HOWS:
        raise UserError("zip", expected=f"how= one of {list(HOWS)}", got=repr(how))
    prefixes = [f"e{i}." for i in range(len(parents))]
    examples = lambda: list(zip(*(p.head for p in parents)))
    kinds = [p.kind for p in parents]
    called = RowFunction(function or _together, kinds, prefixes, returns, examples, step="zip")

    def build() -> DataFrame:
        found = [indexed(p) for p in parents]
        lengths = [total for _, total in found]
        if how == "error" and len(set(lengths)) > 1:
            raise UserError(
                "zip", expected="DIAs of one length", got=f"lengths {lengths}",
                hint='how="cut" ends with the shortest, how="pad" fills up with nulls',
            )  # fmt: skip
        frames = [
            df.select(INDEX, *(named(n).alias(prefix + n) for n in columns_of(p.kind).names))
            for (df, _), p, prefix in zip(found, parents, prefixes)
        ]
        blocks = max(1, *(partition_count(p.frame) for p in parents))
        if how == "pad":
            frames = [every_index(parents[0].session, max(lengths)), *frames]
        rows = side_by_side(frames, max(lengths), blocks, "left" if how == "pad" else "inner")
        return called.on(rows)

    return Operation(
        "zip", tuple(parents), called.kind, parents[0].session, build,
        moves="elements to their index", settled=is_steady(called.function), **described(called.function),
    )  # fmt: skip
