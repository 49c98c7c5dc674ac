"""Errors that every engine raises with the same message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.core.errors import UserError
from tidemill.core.schema import users_part
from tidemill.core.time import shown_instant
from tidemill.plan.nodes import Plan, Source, WindowAggregate, sources
from tidemill.plan.temporal import FromEdges


def check_inputs(plan: Plan, inputs: Mapping[str, Any], *, step: str = "run") -> None:
    """Raise an error unless there is exactly one input for each stream of the query."""
    names = [source.name for source in sources(plan)]
    if set(inputs) != set(names):
        shown = ", ".join(map(repr, names))
        raise UserError(
            step, expected=f"one input named {shown}" if len(names) == 1 else f"inputs named {shown}",
            got=f"{sorted(inputs)}", hint=f"write {step}({', '.join(f'{n}=...' for n in names)})",
        )  # fmt: skip


def by_name(plan: Plan, data: Any, inputs: dict[str, Any], *, step: str = "run") -> dict[str, Any]:
    """Return the inputs of a query; `data` is one without a name, that of a query of one stream."""
    if data is None:
        return inputs
    names = [source.name for source in sources(plan)]
    if inputs or len(names) != 1:
        raise UserError(
            step, expected="an input without a name for a query of one stream only",
            got=f"{type(data).__name__} without a name, for {names}",
            hint=f"write {step}({', '.join(f'{n}=...' for n in names)})",
        )  # fmt: skip
    return {names[0]: data}


def null_time(plan: WindowAggregate, attribute: str | None = None) -> UserError:
    """Return the error for a null in the windowing attribute, or in another attribute of the windows."""
    name = users_part(attribute or plan.attribute)
    computed = name != (attribute or plan.attribute)
    return UserError(
        f"window {plan.windows[0].spec}",
        expected=f"no null in {'the windowing attribute' if computed else 'the windowing column'} {name!r}",
        got="null", hint=f"filter first: .where({name if computed else f'col.{name}'}.is_not_null())",
    )  # fmt: skip


def null_order(plan: WindowAggregate) -> UserError:
    """Return the error for a null in the time that rows are numbered by, after some have their numbers."""
    name = plan.input.time
    return UserError(
        f"window {plan.windows[0].spec}", expected=f"rows without a time in {name!r} before all others",
        got="null", hint=f"filter first: .where(col.{name}.is_not_null())",
    )  # fmt: skip


def far_time(plan: WindowAggregate, attribute: str | None = None) -> UserError:
    """Return the error for a time so far from zero that window arithmetic would overflow."""
    name = users_part(attribute or plan.attribute)
    return UserError(
        f"window {plan.windows[0].spec}",
        expected=f"times in {name!r} within 2**61 ticks of zero", got="a time outside",
    )  # fmt: skip


def broken_promise(names: list[str], rows: int) -> UserError:
    """Return the error for rows below the watermark that their own input promised."""
    return UserError(
        f"run {', '.join(names)}", expected="no row below the watermark of its own input",
        got=f"{rows} rows below it", hint="statistics in a Parquet file may be wrong: write it again",
    )  # fmt: skip


def unordered_time(source: Source, before: int, after: int) -> UserError:
    """Return the error for an unsorted stream that was declared as ordered."""
    return UserError(
        f"run {source.name}", expected=f"rows in order of {source.time!r}, as ordered=True says",
        got=f"{after} after {before} (ticks)", hint="sort the input, or declare the stream without it",
    )  # fmt: skip


def null_start(plan: Plan) -> UserError:
    """Return the error for a row without a start, which holds nobody knows when."""
    name = users_part(plan.time)
    return UserError(
        kind_of(plan), expected=f"a time in {name!r}, where the lifetime of a row starts", got="null",
        hint=f"filter first: .where(col.{name}.is_not_null())",
    )  # fmt: skip


def no_lifetime(plan: Plan, start: int, end: int) -> UserError:
    """Return the error for a row that holds at no instant, or whose lifetime is too far from zero."""
    if end > start:
        return UserError(
            kind_of(plan), expected=f"lifetimes in {users_part(plan.time)!r} within 2**61 ticks of zero",
            got="one outside",
        )  # fmt: skip
    first, last = (shown_instant(at, plan.domain) for at in (start, end))
    what = f"{users_part(plan.end or '')!r} after {users_part(plan.time)!r}"
    return UserError(
        kind_of(plan), expected=f"an end in {what}", got=f"{last}, and the start is {first}",
        hint=f"filter first: .where((col.{plan.end} > col.{plan.time}) | col.{plan.end}.is_null())",
    )  # fmt: skip


def lost_edge(plan: FromEdges, at: int, *, start: bool) -> UserError:
    """Return the error for an end without a start, or a second start while one is open."""
    what = "a second start while one is open" if start else "an end without a start before it"
    keys = ", ".join(map(repr, plan.keys))
    return UserError(
        f"from_edges {keys}", expected="starts and ends by turns, for each key",
        got=f"{what}, at {shown_instant(at, plan.domain)}",
        hint="name more columns that a start and its end have in common, or filter such rows first",
    )  # fmt: skip


def kind_of(plan: Plan) -> str:
    """Return what errors in the rows of a plan name."""
    if isinstance(plan, Source):
        return plan.step or f"stream {plan.name!r}"
    return str(plan).split(" ")[0]
