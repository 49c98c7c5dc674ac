"""Frames that users give: which of them Tidemill takes."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.core.errors import UserError
from tidemill.io.data import quoted
from tidemill.spark.private import require_classic


def require_batch(step: str, df: Any) -> None:
    """Refuse what is not a DataFrame, and a streaming one: windows over micro-batches would be wrong."""
    if not hasattr(df, "mapInArrow"):
        raise UserError(
            step, expected="a Spark DataFrame", got=type(df).__name__,
            hint="for data in this process use query.run(...)",
        )  # fmt: skip
    if df.isStreaming:
        raise UserError(
            step, expected="a DataFrame that ends", got="a streaming one",
            hint="streams are not supported yet: write the stream to a table or files, and read those",
        )  # fmt: skip


def require_classic_batch(step: str, df: DataFrame) -> None:
    """Refuse, besides, frames of Spark Connect."""
    require_batch(step, df)
    require_classic(step, df.sparkSession)


def with_metadata(df: DataFrame, columns: Mapping[str, Mapping[str, str]]) -> DataFrame:
    """Return the frame with metadata at some columns: `df.schema["n"].metadata` is what is said of `n`."""
    shown = []
    for name in df.columns:
        column = F.col(quoted(name))
        shown.append(column.alias(name, metadata=dict(columns[name])) if name in columns else column)
    return df.select(*shown)


def printed_plan(df: DataFrame) -> str:
    """Return Spark's physical plan, which its interface prints."""
    with redirect_stdout(io.StringIO()) as printed:
        df.explain()
    return printed.getvalue().removeprefix("== Physical Plan ==\n").rstrip()
