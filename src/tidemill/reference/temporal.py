"""The temporal algebra by definition: what holds at every instant (paper 000, section 5.2)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

from tidemill.core.floats import canonical
from tidemill.core.time import FOREVER
from tidemill.expr.evaluate import evaluate
from tidemill.plan.faults import lost_edge
from tidemill.plan.intervals import IntervalJoin
from tidemill.plan.nodes import Plan
from tidemill.plan.temporal import (
    ALWAYS_START,
    CHANGE,
    EDGE,
    LEFT,
    RIGHT,
    Chop,
    Cut,
    Edges,
    FromEdges,
    Join,
    Lifetime,
    Neighbours,
    SnapshotAggregate,
    Stitch,
    Temporal,
    TopRows,
    Unnest,
    UntilSessionEnd,
    payload,
    sided,
    start_alone,
)
from tidemill.reference.aggregates import Row, aggregate
from tidemill.reference.intervals import interval_join
from tidemill.reference.lifetimes import Life, in_order, key_of, life, matching


def rows_of(plan: Temporal, below: list[list[Row]]) -> Iterator[Row]:
    """Yield the rows of an operator, given the rows of its inputs."""
    if isinstance(plan, Lifetime):
        has_times = plan.input.time in plan.input.schema  # a table has none
        for row in below[0]:
            if has_times and (plan.input.end is not None or row[plan.input.time] is None):
                life(plan.input, row)  # which raises an error if it has none
            yield {n: evaluate(e, row, plan.input.schema) for n, e in plan.outputs}
    elif isinstance(plan, Join):
        yield from _join(plan, *below)
    elif isinstance(plan, Cut):
        yield from _cut(plan, *below)
    elif isinstance(plan, IntervalJoin):
        yield from interval_join(plan, *below)
    else:
        yield from _ONE_INPUT[type(plan)](plan, below[0])


def _lifetime(plan: Plan, found: Life) -> Row:
    """Return a lifetime as columns."""
    row: Row = {plan.time: found[0]}
    if plan.end is not None:
        row[plan.end] = None if found[1] == FOREVER else found[1]
    return row


def _groups(rows: list[Row], names: Iterable[str]) -> dict[Any, list[Row]]:
    names, found = tuple(names), defaultdict(list)
    for row in rows:
        found[key_of(row, names)].append(row)
    return found


def _segments(lives: Iterable[Life]) -> Iterator[Life]:
    """Yield the longest intervals in which no lifetime starts or ends."""
    yield from pairwise(sorted({at for one in lives for at in one}))


def _holds(one: Life, segment: Life) -> bool:
    return one[0] <= segment[0] and segment[1] <= one[1]


def _joined(segments: Iterable[Life]) -> list[Life]:
    """Return intervals in order, those that touch or overlap as one."""
    found: list[Life] = []
    for start, end in sorted(segments):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _without(one: Life, gone: Iterable[Life]) -> list[Life]:
    """Return the parts of an interval that others leave."""
    left, at = [], one[0]
    for start, end in _joined(gone):
        if start > at:
            left.append((at, start))
        at = max(at, end)
    if at < one[1]:
        left.append((at, one[1]))
    return left


def _both(a: Life, b: Life) -> Life:
    return max(a[0], b[0]), min(a[1], b[1])


# --- snapshots --------------------------------------------------------------------------------------


def _snapshot(plan: SnapshotAggregate, rows: list[Row]) -> Iterator[Row]:
    for key, members in _groups(rows, plan.keys).items():
        lives = [life(plan.input, row) for row in members]
        last: tuple[Life, Row] | None = None
        for segment in _segments(lives):
            inside = [(one[0], row) for one, row in zip(lives, members) if _holds(one, segment)]
            if not inside:
                continue
            value = aggregate(plan.layout, inside, plan.input.schema)
            if last is not None and last[0][1] == segment[0] and _same(last[1], value):
                last = ((last[0][0], segment[1]), value)
                continue
            if last is not None:
                yield {**dict(zip(plan.keys, key)), **_lifetime(plan, last[0]), **last[1]}
            last = segment, value
        if last is not None:
            yield {**dict(zip(plan.keys, key)), **_lifetime(plan, last[0]), **last[1]}


def _same(a: Row, b: Row) -> bool:
    one, other = ([canonical_value(row[n]) for n in a] for row in (a, b))
    return one == other  # a list compares NaN by identity, and there is one


def canonical_value(value: Any) -> Any:
    """Return a value that is equal to that of an equal value: lists as tuples, NaN as one value."""
    if isinstance(value, list):
        return tuple(canonical_value(v) for v in value)
    if isinstance(value, dict):
        return tuple((n, canonical_value(v)) for n, v in value.items())
    return canonical(value)


def _stitch(plan: Stitch, rows: list[Row]) -> Iterator[Row]:
    """The canonical form: of n equal rows that hold at an instant, the k-th belongs to the k-th layer."""
    names = payload(plan)
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(canonical_value(row[n]) for n in names)].append(row)
    for members in groups.values():
        lives = [life(plan.input, row) for row in members]
        layers: dict[int, list[Life]] = defaultdict(list)
        for segment in _segments(lives):
            for layer in range(sum(_holds(one, segment) for one in lives)):
                layers[layer].append(segment)
        for segments in layers.values():
            for one in _joined(segments):
                yield {**members[0], **_lifetime(plan, one)}


def _top(plan: TopRows, rows: list[Row]) -> Iterator[Row]:
    others = [n for n in payload(plan) if n != plan.by and plan.schema[n].is_ordered]
    for members in _groups(rows, plan.keys).values():
        lives = [life(plan.input, row) for row in members]
        ranked = sorted(range(len(members)), key=lives.__getitem__)
        ranked.sort(key=lambda i: in_order(members[i], others), reverse=True)
        ranked.sort(key=lambda i: in_order(members[i], [plan.by]), reverse=not plan.least)
        ranked.sort(key=lambda i: members[i][plan.by] is None)
        held = defaultdict(list)
        for segment in _segments(lives):
            for i in [i for i in ranked if _holds(lives[i], segment)][: plan.count]:
                held[i].append(segment)
        for i, segments in held.items():
            for one in _joined(segments):
                yield {**members[i], **_lifetime(plan, one)}


# --- two inputs -------------------------------------------------------------------------------------


def _join(plan: Join, left: list[Row], right: list[Row]) -> Iterator[Row]:
    matches = matching(plan.match, plan.left, plan.right)
    met: tuple[dict[int, list[Life]], dict[int, list[Life]]] = (
        defaultdict(list),
        defaultdict(list),
    )
    for i, one in enumerate(left):
        for j, other in enumerate(right):
            shared = _both(life(plan.left, one), life(plan.right, other))
            if shared[0] < shared[1] and matches(one, other):
                met[0][i].append(shared)
                met[1][j].append(shared)
                yield {**_paired(plan, one, other), **_lifetime(plan, shared)}
    for side, rows, kinds in ((0, left, ("left", "outer")), (1, right, ("right", "outer"))):
        for i, row in enumerate(rows if plan.kind in kinds else []):
            source = plan.children()[side]
            for alone in _without(_since(plan, source, row), met[side][i]):
                pair = _paired(plan, row, None) if side == 0 else _paired(plan, None, row)
                yield {**pair, **_lifetime(plan, alone)}


def _since(plan: Join, source: Plan, row: Row) -> Life:
    """Return the lifetime of a row, which may be nothing: a table's rows start where time can be shown."""
    start, end = life(source, row)
    first = start_alone(plan, source)
    return (start if first is None or start != ALWAYS_START else first), end


def _paired(plan: Join, left: Row | None, right: Row | None) -> Row:
    """Return the columns of a pair, or of one side alone. The key of a row of the right side is its own."""
    both: Row = dict.fromkeys(n for n, _ in sided(plan.left, plan.right))
    if left is not None:
        both |= {LEFT + n: v for n, v in left.items()}
    if right is not None:
        both |= {RIGHT + n: v for n, v in right.items()}
    if left is None and right is not None:
        both |= {LEFT + a: right[b] for a, b in zip(plan.match.left_keys, plan.match.right_keys)}
    return {n: both[of] for n, of in plan.columns}


def _cut(plan: Cut, left: list[Row], right: list[Row]) -> Iterator[Row]:
    matches = matching(plan.match, plan.left, plan.right)
    for row in left:
        own = life(plan.left, row)
        others = [(life(plan.right, other), other) for other in right]
        if plan.kind == "clip":
            stops = [s for (s, _), other in others if own[0] < s < own[1] and matches(row, other)]
            yield {**row, **_lifetime(plan, (own[0], min([*stops, own[1]])))}
            continue
        met = [(_both(own, one), other) for one, other in others]
        held = [shared for shared, other in met if shared[0] < shared[1] and matches(row, other)]
        for piece in _joined(held) if plan.kind == "exists" else _without(own, held):
            yield {**row, **_lifetime(plan, piece)}


# --- lifetimes that depend on other rows ------------------------------------------------------------


def _chop(plan: Chop, rows: list[Row]) -> Iterator[Row]:
    lives = [life(plan.input, row) for row in rows]
    latest = max((at for one in lives for at in one if at != FOREVER), default=0)
    for row, (start, end) in zip(rows, lives):
        first = (start - plan.origin) // plan.every + 1
        last = (min(end - 1, latest) - plan.origin) // plan.every
        cuts = [plan.origin + n * plan.every for n in range(first, last + 1)]
        for one in pairwise([start, *cuts, end]):
            yield {**row, **_lifetime(plan, one)}


def _until_session_end(plan: UntilSessionEnd, rows: list[Row]) -> Iterator[Row]:
    for members in _groups(rows, plan.keys).values():
        members.sort(key=lambda row: life(plan.input, row)[0])
        starts = [row[plan.time] for row in members]
        ends: list[int] = []
        for at, following in reversed(list(zip(starts, [*starts[1:], FOREVER]))):
            ends.append(ends[-1] if following - at < plan.gap else at + plan.gap)
        for row, end in zip(members, reversed(ends)):
            yield {**row, plan.end_column: end}


def _neighbours(plan: Neighbours, rows: list[Row]) -> Iterator[Row]:
    names = [n for n in payload(plan.input) if plan.schema[n].is_ordered]
    for members in _groups(rows, plan.keys).values():
        members.sort(key=lambda row: (life(plan.input, row), in_order(row, names)))
        for i, row in enumerate(members):
            found = dict(row)
            for asked in plan.asked:
                at = i - asked.back
                found[asked.name] = members[at][asked.column] if 0 <= at < len(members) else None
            yield found


# --- edges and lists --------------------------------------------------------------------------------


def _unnest(plan: Unnest, rows: list[Row]) -> Iterator[Row]:
    for row in rows:
        for element in row[plan.column] or ():
            found: Row = {}
            for name, value in row.items():
                if name != plan.column:
                    found[name] = value
                elif plan.element:
                    found[plan.element] = element
                else:
                    names = plan.input.schema[name].of[0].names
                    found |= dict.fromkeys(names) if element is None else element
            yield found


def _edges(plan: Edges, rows: list[Row]) -> Iterator[Row]:
    found = []
    for row in rows:
        start, end = life(plan.input, row)
        values = {n: row[n] for n in plan.input.schema.names if n != plan.input.end}
        found.append((1, {**values, plan.time: start}))
        if end != FOREVER:
            found.append((-1, {**values, plan.time: end}))
    if not plan.changes:
        yield from ({EDGE: "start" if sign > 0 else "end", **row} for sign, row in found)
        return
    net: Counter[Any] = Counter()
    rows_of_value = {}
    for sign, row in found:
        value = tuple(canonical_value(v) for v in row.values())
        net[value] += sign
        rows_of_value[value] = row
    for value, count in net.items():
        yield from [{CHANGE: 1 if count > 0 else -1, **rows_of_value[value]}] * abs(count)


def _from_edges(plan: FromEdges, rows: list[Row]) -> Iterator[Row]:
    schema = plan.input.schema
    starts = {id(row): evaluate(plan.starts, row, schema) is True for row in rows}
    for members in _groups(rows, plan.keys).values():
        opened: Row | None = None
        for row in sorted(members, key=lambda row: (life(plan.input, row)[0], starts[id(row)])):
            if starts[id(row)] is (opened is not None):
                raise lost_edge(plan, row[plan.time], start=starts[id(row)])
            if opened is not None:
                yield {**opened, plan.end_column: row[plan.time]}
            opened = row if starts[id(row)] else None
        if opened is not None:
            yield {**opened, plan.end_column: None}


_ONE_INPUT: dict[type, Callable[[Any, list[Row]], Iterator[Row]]] = {
    SnapshotAggregate: _snapshot, Stitch: _stitch, TopRows: _top, Chop: _chop,
    UntilSessionEnd: _until_session_end, Neighbours: _neighbours, Unnest: _unnest, Edges: _edges,
    FromEdges: _from_edges,
}  # fmt: skip
