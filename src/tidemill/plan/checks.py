"""What every engine says of the same fault."""

from __future__ import annotations

from tidemill.core.errors import UserError
from tidemill.plan.nodes import WindowAggregate


def null_time(plan: WindowAggregate) -> UserError:
    """The windowing attribute is null in some row."""
    name = plan.attribute
    return UserError(
        f"window {plan.windows[0].spec}", expected=f"no null in the windowing column {name!r}",
        got="null", hint=f"filter first: .where(col.{name}.is_not_null())",
    )  # fmt: skip
