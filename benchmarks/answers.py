"""Are two answers the same? Rows in one order, integers exactly, floats but for their last bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from benchmarks.harness import Answers, Check

SHOWN = 5


class Mismatch(AssertionError):
    """Two systems answered differently; the message shows how."""


def same_rows(*by: str, rtol: float = 1e-9) -> Check:
    """A check that all answers are the same table, whatever the order of its rows.

    `by` names columns that tell rows apart. Floats may differ by `rtol` of the column's greatest
    value: a window's sum may be had by adding and subtracting. Instants may carry a time zone or not.
    """

    def check(answers: Answers) -> None:
        frames = {name: canonical(answer, by) for name, answer in answers.items()}
        for other in list(frames)[1:]:
            _compare(next(iter(frames)), other, frames, by, rtol)

    return check


def same_snapshots(*keys: str, every: int | None = None) -> Check:
    """A check that all answers have the same rows at each instant, however their lifetimes are cut.

    At an instant there is a row for each value of the keys, from `valid_from` to `valid_to`. An
    answer may have windows instead, one each `every` microseconds, which hold from their end until the next.
    """
    same = same_rows(*keys, "valid_from")

    def check(answers: Answers) -> None:
        same({name: _stitched(canonical(answer), keys, every) for name, answer in answers.items()})

    return check


def _stitched(frame: pl.DataFrame, keys: tuple[str, ...], every: int | None) -> pl.DataFrame:
    """Rows that follow one another with the same values as one row."""
    if "window_end" in frame.columns:
        assert every is not None
        end = pl.col("window_end")
        frame = frame.with_columns(valid_from=end, valid_to=end + every).drop("window_start", "window_end")
    frame = frame.sort(*keys, "valid_from")
    held = pl.exclude("valid_from", "valid_to")
    same = pl.all_horizontal(held.eq_missing(held.shift()))
    follows = same & (pl.col("valid_from") == pl.col("valid_to").shift())
    values = pl.exclude("valid_from", "valid_to", "run")
    return (
        frame.with_columns(run=(~follows).fill_null(True).cum_sum())
        .group_by("run", maintain_order=True)
        .agg(values.first(), pl.col("valid_from").first(), pl.col("valid_to").last())
        .drop("run")
    )


def same_numbers(rtol: float = 1e-9) -> Check:
    """A check that all answers are the same mapping of names to numbers."""

    def check(answers: Answers) -> None:
        (first, expected), *others = answers.items()
        for other, found in others:
            for key in sorted({*expected, *found}):
                a, b = expected.get(key), found.get(key)
                exact = isinstance(a, int) and isinstance(b, int)
                near = None not in (a, b) and (a == b if exact else np.isclose(a, b, rtol=rtol))
                if not near:
                    raise Mismatch(f"{first} and {other} differ in {key}: {a!r} and {b!r}")

    return check


def unchecked(answers: Answers) -> None:
    """For one system against itself on other questions, each of which is compared elsewhere."""


def canonical(answer: Any, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """A table as a frame with sorted columns and rows, instants as integers."""
    frame = answer
    if isinstance(answer, (pa.Table, pa.RecordBatch)):
        frame = pl.from_arrow(answer)
    elif isinstance(answer, Mapping):
        frame = pl.DataFrame(answer)
    columns = []
    for name, kind in sorted(frame.schema.items()):
        column = pl.col(name)
        if isinstance(kind, pl.Datetime):
            column = column.dt.epoch("us")
        elif kind.is_integer() or kind.is_decimal():  # DuckDB's sums of ints
            column = column.cast(pl.Int64)
        columns.append(column)
    found: pl.DataFrame = frame.select(columns).sort(by or sorted(frame.columns))
    return found


def _compare(
    one: str, other: str, frames: Mapping[str, pl.DataFrame], by: tuple[str, ...], rtol: float
) -> None:
    a, b = frames[one], frames[other]
    names = f"{one} and {other} differ"
    if a.columns != b.columns:
        raise Mismatch(f"{names}: columns {a.columns} and {b.columns}")
    keys = [k for k in by if k in a.columns] or a.columns
    if a.height != b.height or not a.select(keys).equals(b.select(keys)):
        raise Mismatch(
            f"{names}: {a.height:,} and {b.height:,} rows\n{_only(one, a, b, keys)}"
            f"\n{_only(other, b, a, keys)}"
        )
    for name in a.columns:
        bad = ~_near(a[name], b[name], rtol)
        if bad.any():
            rows = np.flatnonzero(bad)[:SHOWN]
            shown = (
                a[rows]
                .select(keys)
                .with_columns(a[rows][name].alias(one), b[rows][name].alias(other))
            )
            raise Mismatch(
                f"{names} in {name}, in {int(bad.sum()):,} of {a.height:,} rows:\n{shown}"
            )


def _near(a: pl.Series, b: pl.Series, rtol: float) -> Any:
    nulls = (a.is_null() == b.is_null()).to_numpy()
    if not (a.dtype.is_float() or b.dtype.is_float()):
        return a.eq_missing(b).to_numpy()
    x, y = (s.cast(pl.Float64).fill_null(0.0).to_numpy() for s in (a, b))
    finite = np.abs(x[np.isfinite(x)])
    scale = float(finite.max()) if len(finite) else 0.0
    return nulls & np.isclose(x, y, rtol=rtol, atol=rtol * scale, equal_nan=True)


def _only(name: str, a: pl.DataFrame, b: pl.DataFrame, keys: list[str]) -> str:
    rest = a.join(b, on=keys, how="anti", nulls_equal=True)
    return f"only in {name}: {rest.height:,} rows\n{rest.head(SHOWN)}"
