"""Checks of the arguments of built-in aggregates, before anything runs."""

from __future__ import annotations

from tidemill.aggregates.algebra import Aggregate
from tidemill.aggregates.registry import entry_of
from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.time import Domain, Duration
from tidemill.expr.typing import type_of

_NO_NUMBER = {"string", "binary", "bool", "decimal", "list", "struct"}


def check_arguments(aggregate: Aggregate, schema: Schema, time: str, *, step: str) -> None:
    """Refuse arguments that a built-in aggregate cannot compute with."""
    entry = entry_of(aggregate)
    if entry is None:
        return
    for position in entry.numbers:
        given = aggregate.given[position]
        kind = type_of(given, schema)
        if kind.kind in _NO_NUMBER or (kind.kind == "timestamp" and not entry.of_instants):
            raise UserError(step, expected="a number", got=f"{given}, which is {kind!r}")
    clock = schema[time].kind == "timestamp"
    for name, value in aggregate.params:
        if isinstance(value, Duration) and (value.domain is Domain.CLOCK) != clock:
            want = "text or a timedelta" if clock else "an int"
            raise UserError(
                step, expected=f"{name} to be {want}, because {time!r} is {schema[time]!r}",
                got=str(value), hint="logical and clock time never mix",
            )  # fmt: skip
