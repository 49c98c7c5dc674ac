"""The validated specification of a wheel: aggregates, columns, keys, rings and options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tidemill.aggregates.algebra import Aggregate
from tidemill.aggregates.basic import max as greatest_of
from tidemill.aggregates.basic import min as least_of
from tidemill.aggregates.layout import Result
from tidemill.codegen.state_plan import plan_states
from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.schema import schema as read_schema
from tidemill.core.schema import users_name
from tidemill.core.time import FARTHEST, Domain
from tidemill.core.time_reading import Reading
from tidemill.expr.fluent import Expr
from tidemill.expr.nodes import Column
from tidemill.optimize.fold_constants import fold_constants
from tidemill.plan import build as plans
from tidemill.plan.nodes import NamedWindow, Source, WindowAggregate
from tidemill.wheels.loops.slots import SlotLayout
from tidemill.wheels.rings import Retention, Ring, RingLike, rings_of
from tidemill.wheels.tuning import DEFAULT, WheelTuning
from tidemill.windows.spec import Session, Window, tumbling

MOST_AHEAD = 1 << 20
BLOCK_SLOTS, KEYED_BLOCK = 256, 16
"""Slots in one compressed block, without keys and with keys."""
HIDDEN = "\0"
"""The prefix of names of aggregates that a wheel adds for itself. They come last."""
FIRST_TIME, LAST_TIME = f"{HIDDEN}first", f"{HIDDEN}last"
"""Aggregates that sessions need: the first and last instants in a slot."""


@dataclass(frozen=True)
class WheelSpec:
    """The configuration of a wheel, without its rows."""

    plan: WindowAggregate
    """Tumbling windows of the finest slots over the rows: columns, time, keys and aggregates."""
    rings: tuple[Ring, ...]
    domain: Domain
    given: Mapping[str, Aggregate]
    """The aggregates as the user gave them."""
    write_ahead: int
    prefix: bool
    one_ring_below: int
    tuning: WheelTuning = DEFAULT

    @property
    def grain(self) -> int:
        """Ticks in a slot of the finest ring."""
        return self.rings[0].ticks

    @property
    def open_slots(self) -> int:
        """How many slots are open at a time: kernels need a power of two."""
        return power_of_two(self.write_ahead)

    @property
    def sessions(self) -> bool:
        """Whether slots hold what sessions need."""
        return FIRST_TIME in self.given

    @cached_property
    def objects(self) -> str:
        """The first aggregate whose partials are Python objects; empty if all are numbers."""
        return not_numbers(self.plan)

    @cached_property
    def shown(self) -> list[Result]:
        """The results that users asked for."""
        return [r for r in self.plan.layout.results if not r.name.startswith(HIDDEN)]


def read_windows_given(windows: Any) -> dict[str, Window]:
    """The windows of a wheel by name; the default name is the window's text."""
    listed: Any = [windows] if isinstance(windows, Window) else windows
    if not isinstance(listed, (Mapping, Sequence)) or isinstance(listed, str):
        raise UserError("wheel", expected="windows, as a list or a dict of them", got=repr(windows))
    return dict(listed) if isinstance(listed, Mapping) else {str(w): w for w in listed}


def read_spec(
    aggregates: Any, *, schema: Any, time: str, keys: Any, granularities: Iterable[RingLike],
    retention: Retention | None, write_ahead: Any, prefix: Any, one_ring_below: Any, compress: Any,
    windows: Mapping[str, Window],
) -> WheelSpec:  # fmt: skip
    """Check the arguments of `tm.Wheel` and return its specification."""
    step = "wheel"
    rings, domain = rings_of(granularities, retention, step=step)
    given = named_aggregates(aggregates, step)
    _check_time(schema, time)
    if any(isinstance(w, Session) for w in windows.values()):
        ticks = Expr(Column(time))
        given |= {FIRST_TIME: least_of(ticks), LAST_TIME: greatest_of(ticks)}
    plan = plan_of(given, schema, time, named_keys(keys, step), rings, domain)
    write_ahead = whole("write_ahead", write_ahead, 1, MOST_AHEAD)
    one_ring_below = whole("one_ring_below", one_ring_below, 0, FARTHEST)
    if not isinstance(prefix, bool):
        raise UserError(step, expected="prefix=True or False", got=repr(prefix))
    spec = WheelSpec(plan, rings, domain, given, write_ahead, prefix, one_ring_below)
    if spec.objects and (prefix or compress):
        got = "prefix=True" if prefix else "compress"
        raise UnsupportedError("wheel", f"{got} with {spec.objects}", instead="leave that option out")
    if prefix and compress:
        raise UserError(
            step, expected="prefix=True or compress=True", got="both",
            hint="running sums are read uncompressed; compressed slots are fast with combined rings",
        )  # fmt: skip
    if prefix and not SlotLayout(plan.layout).subtracts:
        raise UserError(
            step, expected="prefix=True only where aggregates subtract exactly: counts, sums of ints",
            got=", ".join(f"{n}={a}" for n, a in given.items()),
        )  # fmt: skip
    return spec


def _check_time(schema: Any, time: Any) -> None:
    step = "Wheel time="
    if not isinstance(time, str):
        raise UserError(step, expected="the name of a column", got=repr(time))
    kind = read_schema(schema, step="Wheel schema=").type_of(time, step=step)
    if not kind.is_ticks:
        raise UserError(
            step, expected=f"a column {time!r} of type timestamp (clock) or int64 (logical)", got=repr(kind)
        )


def plan_of(
    given: Mapping[str, Aggregate], schema: Any, time: str, keys: tuple[str, ...],
    rings: Sequence[Ring], domain: Domain,
) -> WindowAggregate:  # fmt: skip
    """The plan of a wheel's contents: tumbling windows of the finest granularity."""
    source = replace(plans.source("events", time, schema), step="insert")
    grain = rings[0].ticks if domain is Domain.LOGICAL else f"{rings[0].ticks}us"
    node, group = plans.grouped(source, keys, {})
    plan = plans.window_aggregate(node, group, (NamedWindow(None, tumbling(grain)),), given)
    assert isinstance(plan, WindowAggregate), "over ticks of time"
    _check_supported(plan)
    folded = fold_constants(plan)  # as in queries, so that their aggregates are found
    assert isinstance(folded, WindowAggregate)
    return folded


def in_ticks(source: Source) -> Source:
    """The source with times as ticks: the instant of a single row has been converted already."""
    if source.domain is Domain.LOGICAL:
        return source
    return replace(source, reading=Reading(((source.time, "us"),)))


def kind_of(plan: WindowAggregate) -> Any:
    """A value that describes a wheel's contents; wheels can be merged only if theirs are equal."""
    layout = plan.layout
    results = [(r.name, layout.essence(r)) for r in layout.results]
    parts = [p.part for p in layout.parts]
    return plan.input, plan.group_keys, [w.spec for w in plan.windows], parts, results


def block_slots(compress: bool | int, *, keyed: bool) -> int:
    """Slots in a compressed block. With many keys, few slots fill a block."""
    if isinstance(compress, bool):
        return (KEYED_BLOCK if keyed else BLOCK_SLOTS) if compress else 0
    return whole("compress, True or slots to a block,", compress, 0, MOST_AHEAD)


def named_aggregates(given: Any, step: str) -> dict[str, Aggregate]:
    """Aggregates by name; a single aggregate is named `value`."""
    named = {"value": given} if isinstance(given, Aggregate) else given
    if not isinstance(named, Mapping) or not all(isinstance(n, str) for n in named):
        raise UserError(step, expected="an aggregate, or a dict of names to aggregates", got=repr(given))
    if not named:
        raise UserError(step, expected="at least one aggregate", got="none", hint='{"n": tm.count()}')
    for name in named:
        users_name(name, step=step)
    return dict(named)


def named_keys(given: Any, step: str) -> tuple[str, ...]:
    """The names of the key columns."""
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, Sequence) or not all(isinstance(n, str) for n in names):
        raise UserError(step, expected="keys: the name of a column, or a list of names", got=repr(given))
    return tuple(names)


def whole(name: str, value: Any, least: int, most: int) -> int:
    """Require an integer from `least` to `most`; raises `UserError` otherwise."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not least <= value <= most:
        raise UserError("wheel", expected=f"{name} from {least} to {most}", got=repr(value))
    return int(value)


def fits(value: Any, kind: str) -> bool:
    """Whether Arrow stores a value exactly; it may truncate others, such as fractions."""
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
    """The first aggregate whose partials are not a fixed number of numbers; else empty.

    Partials of numbers are kept in arrays and combined by compiled code; others are Python objects.
    """
    layout = plan.layout
    records = plan_states(layout).records
    for index, part in enumerate(layout.parts):
        text = any(t.kind == "string" for t in (*part.types, *(t for _, t in part.columns)))
        if text or index not in records:
            [first, *_] = [r for r in layout.results if index in (*r.parts, r.present)]
            return first.shown
    return ""
