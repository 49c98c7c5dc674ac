"""Apply functions to several elements in one row, as in joins and zips."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from tidemill.core.types import DataType
from tidemill.spark.dia.capture import captured
from tidemill.spark.dia.elements import decode, infer, parse_element
from tidemill.spark.dia.opaque_batches import encoded, in_arrow, raised
from tidemill.spark.dia.traced_columns import ElementColumns
from tidemill.spark.dia.tracing import Function, Opaque, Traced, trace
from tidemill.spark.workers import Batches


class RowFunction:
    """A function of several elements in one row; the columns of each element have a prefix."""

    def __init__(
        self, function: Function, kinds: Sequence[DataType], prefixes: Sequence[str],
        returns: Any, examples: Callable[[], Sequence[tuple[Any, ...]]], *, step: str,
    ) -> None:  # fmt: skip
        declared = None if returns is None else parse_element(returns, step=step)
        self.kinds, self.prefixes, self.step = list(kinds), list(prefixes), step
        self.function: Traced | Opaque = trace(function, self.kinds, self.prefixes, declared)
        if isinstance(self.function, Traced):
            self.kind: DataType = self.function.type
        else:
            self.kind = declared or infer(_called(function, examples(), step), step=step)
            self.function = Opaque(captured(function), self.function.why)

    def on(self, df: DataFrame) -> DataFrame:
        """Apply the function to every row."""
        if isinstance(self.function, Traced):
            columns = ElementColumns.of(*self.kinds, prefixes=self.prefixes)
            return df.select(*columns.element(self.function))
        function, kinds, prefixes = self.function.function, self.kinds, self.prefixes
        kind, step = self.kind, self.step

        def task(batches: Batches) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                rows = list(zip(*(decode(batch, k, p) for k, p in zip(kinds, prefixes))))
                yield from encoded(_called(function, rows, step), kind, step=step)

        return in_arrow(df, task, kind)


def _called(function: Function, rows: Sequence[tuple[Any, ...]], step: str) -> list[Any]:
    made: list[Any] = []
    try:
        for row in rows:
            made.append(function(*row))
    except Exception as failed:
        raise raised(function, failed, rows[len(made)], step=step) from failed
    return made
