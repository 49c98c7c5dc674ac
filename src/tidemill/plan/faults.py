"""What every engine says of the same fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.core.errors import UserError
from tidemill.plan.nodes import Plan, Source, WindowAggregate, sources


def check_inputs(plan: Plan, inputs: Mapping[str, Any], *, step: str = "run") -> None:
    """Each stream of the query needs its input, and nothing else."""
    names = [source.name for source in sources(plan)]
    if set(inputs) != set(names):
        shown = ", ".join(map(repr, names))
        raise UserError(
            step, expected=f"one input named {shown}" if len(names) == 1 else f"inputs named {shown}",
            got=f"{sorted(inputs)}", hint=f"write {step}({', '.join(f'{n}=...' for n in names)})",
        )  # fmt: skip


def null_time(plan: WindowAggregate) -> UserError:
    """The windowing attribute is null in some row."""
    name = plan.attribute
    return UserError(
        f"window {plan.windows[0].spec}", expected=f"no null in the windowing column {name!r}",
        got="null", hint=f"filter first: .where(col.{name}.is_not_null())",
    )  # fmt: skip


def far_time(plan: WindowAggregate) -> UserError:
    """The windowing attribute is so far from zero that windows around it cannot be counted."""
    return UserError(
        f"window {plan.windows[0].spec}",
        expected=f"times in {plan.attribute!r} within 2**61 ticks of zero", got="one beyond",
    )  # fmt: skip


def broken_promise(names: list[str], rows: int) -> UserError:
    """Rows of an input lie before what the input itself said of the rows to come."""
    return UserError(
        f"run {', '.join(names)}", expected="no row before what the input promised of the rows to come",
        got=f"{rows} rows before it", hint="statistics in a Parquet file may be wrong: write it again",
    )  # fmt: skip


def unordered_time(source: Source, before: int, after: int) -> UserError:
    """A stream that was declared as ordered is not."""
    return UserError(
        f"run {source.name}", expected=f"rows in order of {source.time!r}, as ordered=True says",
        got=f"{after} after {before} (ticks)", hint="sort the input, or declare the stream without it",
    )  # fmt: skip
