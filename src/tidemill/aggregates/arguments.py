"""Checks of the arguments of built-in aggregates, before anything runs, and what follows from their types."""

from __future__ import annotations

from dataclasses import replace

from tidemill.aggregates.algebra import Aggregate
from tidemill.aggregates.basic import mean_of_durations
from tidemill.aggregates.holistic import of_rows
from tidemill.aggregates.registry import entry_of
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema, is_internal
from tidemill.core.time import Domain, Duration
from tidemill.core.types import BOOL, DURATION, INT64
from tidemill.expr.nodes import Cast, Column
from tidemill.expr.typing import type_of


def _of_rows(aggregate: Aggregate, schema: Schema) -> Aggregate:
    """`top_rows` over its columns, or over all that there are."""
    step, (by, *columns) = str(aggregate), aggregate.args
    if not columns:
        columns = [Column(name) for name in schema.names if not is_internal(name)]
    types = tuple(type_of(node, schema) for node in (by, *columns))
    for node, kind in zip((by, *columns), types):
        if not kind.is_ordered:
            raise UserError(
                step, expected="columns of numbers, text, bools, instants or durations",
                got=f"{node}, which is {kind!r}", hint="name the columns that shall be kept",
            )  # fmt: skip
    return of_rows(aggregate, (by, *columns), types)


_NO_NUMBER = {"string", "binary", "decimal", "list", "struct"}


def fitted(aggregate: Aggregate, schema: Schema) -> Aggregate:
    """An aggregate for the types of its arguments, which are resolved.

    Where it computes with numbers, a bool is 0 or 1. The mean of durations is a duration.

    >>> from tidemill.aggregates.basic import mean
    >>> from tidemill.core.schema import schema
    >>> print(fitted(mean("b"), schema({"b": "bool"})))
    mean(cast(col.b as int64))
    """
    entry = entry_of(aggregate)
    if entry is None:
        return aggregate
    if entry.name == "top_rows":
        return _of_rows(aggregate, schema)
    numbers = [aggregate.given[position] for position in entry.numbers]
    kinds = [type_of(node, schema) for node in numbers]
    if BOOL in kinds:
        bools = [node for node, kind in zip(numbers, kinds) if kind == BOOL]
        return aggregate.over(lambda node: Cast(node, INT64) if node in bools else node)
    if entry.name == "mean" and kinds == [DURATION]:
        return replace(aggregate, lower=mean_of_durations)
    return aggregate


def check_arguments(aggregate: Aggregate, schema: Schema, time: str, *, step: str) -> None:
    """Refuse arguments that a built-in aggregate cannot compute with."""
    entry = entry_of(aggregate)
    if entry is None:
        return
    for position in entry.numbers:
        given = aggregate.given[position]
        kind = type_of(given, schema)
        if kind.kind in _NO_NUMBER or (kind.kind == "timestamp" and not entry.of_instants):
            hint = (
                "numbers in text: .cast('float64'), after .replace(',', '') of what is between thousands, "
                ".replace('$', '') and .replace('%', '') of signs"
            )
            raise UserError(
                step, expected="a number", got=f"{given}, which is {kind!r}",
                hint=hint if kind.kind == "string" else "",
            )  # fmt: skip
    clock = schema[time].kind == "timestamp"
    for name, value in aggregate.params:
        if isinstance(value, Duration) and (value.domain is Domain.CLOCK) != clock:
            want = "text or a timedelta" if clock else "an int"
            raise UserError(
                step, expected=f"{name} to be {want}, because {time!r} is {schema[time]!r}",
                got=str(value), hint="logical and clock time never mix",
            )  # fmt: skip
