"""What every engine says of the same fault."""

from __future__ import annotations

from tidemill.core.errors import UserError
from tidemill.plan.nodes import Source, WindowAggregate


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


def unordered_time(source: Source, before: int, after: int) -> UserError:
    """A stream that was declared as ordered is not."""
    return UserError(
        f"run {source.name}", expected=f"rows in order of {source.time!r}, as ordered=True says",
        got=f"{after} after {before} (ticks)", hint="sort the input, or declare the stream without it",
    )  # fmt: skip
