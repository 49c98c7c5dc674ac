"""What kind of wheel: its options as they must be, and what its slots hold, as a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tidemill.aggregates.algebra import Aggregate
from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.reading import Reading
from tidemill.core.schema import users_name
from tidemill.core.time import Domain
from tidemill.local.state_plan import plan_states
from tidemill.plan import build as plans
from tidemill.plan.nodes import NamedWindow, Source, WindowAggregate
from tidemill.wheels.rings import Ring
from tidemill.windows.spec import tumbling

MOST_AHEAD = 1 << 20
BLOCK_SLOTS, KEYED_BLOCK = 256, 16
"""Slots that are compressed together, without keys and with."""


def plan_of(
    given: Mapping[str, Aggregate], schema: Any, time: str, keys: tuple[str, ...],
    rings: Sequence[Ring], domain: Domain,
) -> WindowAggregate:  # fmt: skip
    """Tumbling windows of the finest slots: what a wheel holds, as a plan."""
    source = replace(plans.source("events", time, schema), step="insert")
    grain = rings[0].ticks if domain is Domain.LOGICAL else f"{rings[0].ticks}us"
    node, group = plans.grouped(source, keys, {})
    plan = plans.window_aggregate(node, group, (NamedWindow(None, tumbling(grain)),), given)
    _check_supported(plan)
    return plan


def in_ticks(source: Source) -> Source:
    """The source with its times as ticks: the time of a single row is an instant that was read already."""
    if source.domain is Domain.LOGICAL:
        return source
    return replace(source, reading=Reading(((source.time, "us"),)))


def kind_of(plan: WindowAggregate) -> Any:
    """What a wheel holds, without how its aggregates came to be."""
    layout = plan.layout
    results = [(r.name, layout.essence(r)) for r in layout.results]
    parts = [p.part for p in layout.parts]
    return plan.input, plan.group_keys, [w.spec for w in plan.windows], parts, results


def block_slots(compress: bool | int, *, keyed: bool) -> int:
    """Slots to a compressed block. Many keys fill one with few slots."""
    if isinstance(compress, bool):
        return (KEYED_BLOCK if keyed else BLOCK_SLOTS) if compress else 0
    return whole("compress, True or slots to a block,", compress, 0, MOST_AHEAD)


def named_aggregates(given: Any, step: str) -> dict[str, Aggregate]:
    """Aggregates by name; a single one is called `value`."""
    named = {"value": given} if isinstance(given, Aggregate) else given
    if not isinstance(named, Mapping) or not all(isinstance(n, str) for n in named):
        raise UserError(step, expected="an aggregate, or a dict of names to aggregates", got=repr(given))
    for name in named:
        users_name(name, step=step)
    return dict(named)


def named_keys(given: Any, step: str) -> tuple[str, ...]:
    """The columns that are keys."""
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, Sequence) or not all(isinstance(n, str) for n in names):
        raise UserError(step, expected="keys: the name of a column, or a list of names", got=repr(given))
    return tuple(names)


def whole(name: str, value: Any, least: int, most: int) -> int:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not least <= value <= most:
        raise UserError("wheel", expected=f"{name} from {least} to {most}", got=repr(value))
    return int(value)


def fits(value: Any, kind: str) -> bool:
    """Whether Arrow takes a value for just what it is; of others it may drop a part."""
    if kind in ("int64", "timestamp"):
        return value is None or (type(value) is int and -(1 << 63) <= value < 1 << 63)
    if kind == "string":
        return value is None or (type(value) is str and value.isascii())
    return value is None or (kind == "float64" and type(value) is float)


def power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _check_supported(plan: WindowAggregate) -> None:
    for part in plan.layout.parts:
        if not part.part.algebra.commutative:
            raise UnsupportedError(
                "wheel", f"{part.part}: it needs rows in the order of time",
                instead="aggregate it with a window",
            )  # fmt: skip


def not_numbers(plan: WindowAggregate) -> str:
    """A part of the aggregates whose partials are not a few numbers, if there is one.

    Others are kept in arrays, and combined by compiled code; these are Python values.
    """
    layout = plan.layout
    records = plan_states(layout).records
    for index, part in enumerate(layout.parts):
        text = any(t.kind == "string" for t in (*part.types, *(t for _, t in part.columns)))
        if text or index not in records:
            return str(part.part)
    return ""
