"""The columns that say which row of an answer a row is, so that two revisions of it can be compared."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.core.errors import UserError
from tidemill.expr.nodes import Column
from tidemill.plan.intervals import IntervalAggregate
from tidemill.plan.nodes import (
    WINDOW,
    WINDOW_END,
    WINDOW_START,
    Filter,
    Plan,
    Project,
    WheelWindows,
    WindowAggregate,
)
from tidemill.plan.temporal import (
    LEFT,
    RIGHT,
    Chop,
    Cut,
    Join,
    Lifetime,
    SnapshotAggregate,
    Stitch,
    Temporal,
)
from tidemill.windows.real_grid import value_of
from tidemill.windows.spec import GridWindow, LastRange, LastRows, Session


def identity(plan: Plan) -> tuple[str, ...] | None:
    """Return the columns of which no two rows of the result have the same values; None if there are none.

    Windows are identified by their bounds, but sessions by their start: their end moves. The start of windows
    of the last rows, or of the last range, moves.

    >>> import tidemill as tm
    >>> s = tm.stream("s", time="t", schema={"t": "int64", "k": "int64"})
    >>> identity(s.group_by("k").window(tm.session(10)).agg(n=tm.count()).plan)
    ('k', 'window_start')
    """
    if isinstance(plan, WindowAggregate):
        several = (WINDOW,) if len(plan.windows) > 1 else ()
        fixed = [WINDOW_START, WINDOW_END]
        for kind, moving in ((Session, WINDOW_END), ((LastRows, LastRange), WINDOW_START)):
            if all(isinstance(w.spec, kind) for w in plan.windows):
                fixed.remove(moving)
        return (*plan.group_keys, *several, *fixed)
    if isinstance(plan, WheelWindows):
        several = (WINDOW,) if len(plan.windows) > 1 else ()
        return (*(name for name, _ in plan.keys), *several, WINDOW_START, WINDOW_END)
    if isinstance(plan, Temporal):
        held = held_once(plan)
        return None if held is None else (*held, plan.time)
    if isinstance(plan, Filter):
        return identity(plan.input)
    if isinstance(plan, Project):
        inner = identity(plan.input)
        names = {node.name: name for name, node in plan.outputs if isinstance(node, Column)}
        names |= {node: name for name, node in _float_bounds(plan)}
        if inner is not None and all(name in names for name in inner):
            return tuple(names[name] for name in inner)
    return None


def held_once(plan: Plan) -> tuple[str, ...] | None:
    """Return columns of which no two rows that hold at one instant have the same values, or None."""
    if isinstance(plan, SnapshotAggregate):
        return plan.keys
    if isinstance(plan, Filter):
        return held_once(plan.input)
    if isinstance(plan, Cut):
        return held_once(plan.left)
    if isinstance(plan, IntervalAggregate):
        return held_once(plan.base)
    if isinstance(plan, (Chop, Stitch)):
        return held_once(plan.input)
    if isinstance(plan, Lifetime) and plan.hops is not None and isinstance(plan.input, WindowAggregate):
        return plan.input.group_keys  # each window holds until the next one ends (`optimize.hops_as_windows`)
    if isinstance(plan, Project):
        inner = held_once(plan.input)
        names = {node.name: name for name, node in plan.outputs if isinstance(node, Column)}
        return None if inner is None or not set(inner) <= set(names) else tuple(names[n] for n in inner)
    if isinstance(plan, Join):
        sides = held_once(plan.left), held_once(plan.right)
        if sides[0] is None or sides[1] is None:
            return None
        names = {of: name for name, of in plan.columns}
        equal = dict(zip(plan.match.right_keys, plan.match.left_keys))
        asked = [LEFT + n for n in sides[0]]
        asked += [LEFT + equal[n] if n in equal else RIGHT + n for n in sides[1]]
        return tuple(dict.fromkeys(names[of] for of in asked)) if set(asked) <= set(names) else None
    return None


def _float_bounds(plan: Project) -> Iterator[tuple[str, str]]:
    """Return the outputs that are bounds of windows as floats, and which: no two ticks are one float."""
    below = plan.input
    while isinstance(below, Filter):
        below = below.input
    spec = below.windows[0].spec if isinstance(below, WindowAggregate) else None
    if isinstance(spec, GridWindow) and spec.grain is not None:
        for bound in (WINDOW_START, WINDOW_END):
            node = value_of(Column(bound), spec.grain)
            yield from ((name, bound) for name, output in plan.outputs if output == node)


def require_identity(step: str, plan: Plan) -> tuple[str, ...]:
    """Return the columns that identify a row of the result, or raise an error."""
    found = identity(plan)
    if found is None:
        raise UserError(
            step, expected="windows or aggregates of which the result keeps the keys and the bounds",
            got=f"a result with the columns {list(plan.schema.names)}, in which rows may be the same",
            hint="keep keys, window_start and window_end in the last select(...), or ask for .distinct(...)",
        )  # fmt: skip
    return found
