"""Read windows from a wheel if the input is a wheel. A wheel has no rows to fall back on.

A wheel can answer the windows of a query if their bounds are bounds of slots, if the wheel has the keys and
the aggregates, and if no step below the windows needs single rows. Conditions on keys move above the windows;
conditions on time, at bounds of slots, select the slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tidemill.aggregates.algebra import Aggregate
from tidemill.aggregates.layout import layout
from tidemill.core.errors import UserError
from tidemill.expr.nodes import Call, Column, Literal, Node, columns_of, substitute
from tidemill.optimize.fold_constants import fold_constants
from tidemill.optimize.rule import rule
from tidemill.plan.nodes import Filter, Plan, Project, Source, Union, WheelWindows, WindowAggregate
from tidemill.plan.stages import Stage, stage_of
from tidemill.plan.temporal import Temporal
from tidemill.plan.wheel_facts import WheelFacts
from tidemill.windows.spec import GridWindow, Rows, Window

INSTEAD = "make a wheel that fits, or run the query on the rows: a wheel has none"
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


@rule(Source, Filter, Project, Union, WindowAggregate, WheelWindows, Temporal)
def use_wheel(plan: Plan, wheels: Mapping[str, WheelFacts]) -> Plan:
    """Replace windows over rows by windows of wheels; `wheels` are the inputs that are wheels, by name."""

    def answered(node: Plan) -> Plan:
        if isinstance(node, WindowAggregate):
            base = stage_of(node.input).base
            if isinstance(base, Source) and base.name in wheels:
                return _from_wheel(node, base, wheels[base.name])
        return node

    after = plan.transform(answered)
    for left in after.walk():
        if isinstance(left, Source) and left.name in wheels:
            raise _no_windows(left, after)
    return after


def _no_windows(source: Source, plan: Plan) -> UserError:
    """Why the rows of an input would be needed, which a wheel does not have."""
    for windows in (n for n in plan.walk() if isinstance(n, WindowAggregate)):
        below: list[Plan] = [n for n in windows.input.walk() if isinstance(n, Union)]
        if any(source in union.walk() for union in below):
            return UserError(
                _step(source), expected=f"windows over {source.name} alone",
                got=f"a union below the windows: {windows}",
                hint="apply windows to each input, and the union above them: a wheel holds no rows",
            )  # fmt: skip
    return UserError(
        _step(source), expected="a query with windows: a wheel holds no rows", got=str(plan),
        hint="run the query on the rows; `left_out` of a query needs them, too",
    )


def _step(source: Source) -> str:
    return f"run {source.name}, which is a wheel"


def _from_wheel(node: WindowAggregate, source: Source, wheel: WheelFacts) -> Plan:
    stage = stage_of(node.input)
    held = fold_constants(wheel.held)
    assert isinstance(held, WindowAggregate)
    asked = _Asked(node, stage, source, wheel, held)
    for window in node.windows:
        asked.check_window(window.spec)
    asked.check_time()
    keys = asked.keys()
    of_keys, since, until = asked.conditions()
    found: Plan = WheelWindows(
        source.name, node.schema, node.windows, keys, asked.aggregates(), since, until
    )
    names: dict[str, Node] = {own: Column(name) for name, own in keys}
    for predicate in of_keys:
        found = Filter(found, substitute(predicate, names))
    return found


@dataclass(frozen=True)
class _Asked:
    """A query and the wheel to answer it. A method raises an error if the wheel cannot answer its part."""

    node: WindowAggregate
    stage: Stage
    source: Source
    wheel: WheelFacts
    held: WindowAggregate

    def _refused(self, expected: str, got: str) -> UserError:
        return UserError(_step(self.source), expected=expected, got=got, hint=INSTEAD)

    def check_time(self) -> None:
        """Check that windows are over the time of the wheel, and that its columns have the same types."""
        time, over = Column(self.held.input.time), self.stage.output(self.node.attribute)
        if over != time:
            raise self._refused(f"windows over {time}", f"windows over {over}")
        own = self.held.input.schema
        for name, kind in self.source.schema:
            if name in own and own[name] != kind:
                raise self._refused(f"a column {name!r} of {own[name]!r}", repr(kind))

    def keys(self) -> tuple[tuple[str, str], ...]:
        """Return each key of the result with the matching key of the wheel."""
        nodes = [(k, self.stage.output(k)) for k in self.node.group_keys]
        found = tuple((k, n.name) for k, n in nodes if isinstance(n, Column))
        theirs = self.held.group_keys
        if len(found) < len(nodes) or {own for _, own in found} != set(theirs):
            mine = ", ".join(str(n) for _, n in nodes)
            raise self._refused(
                f"group_by the keys it has, {', '.join(map(str, map(Column, theirs))) or 'none'}",
                f"group_by {mine or 'none'}",
            )
        return found

    def check_window(self, spec: Window) -> None:
        if not isinstance(spec, GridWindow) or isinstance(spec, Rows) or spec.fill_empty:
            raise self._refused(
                "tumbling, hopping or landmark windows that are not filled up", f"window {spec}"
            )
        grid = self.wheel.rings[0].shown
        if any(x % self.wheel.grain for x in (spec.length or 0, spec.slide, spec.origin, spec.start or 0)):
            raise self._refused(f"windows on the grid of {grid}", f"window {spec}")

    def aggregates(self) -> tuple[tuple[str, str | Aggregate], ...]:
        """Return each result with the name of the wheel's aggregate, or an aggregate of its partials."""
        over = tuple((n, a.over(self.stage.rewrite)) for n, a in self.node.aggregates)
        plain = fold_constants(replace(self.node, input=self.source, aggregates=over))
        assert isinstance(plain, WindowAggregate)
        held = {self.held.layout.essence(r): r.name for r in self.held.layout.results}
        laid_out = layout(plain.aggregates, self.source.schema, self.held.never_null)
        found: list[tuple[str, str | Aggregate]] = []
        for result, (_, aggregate) in zip(laid_out.results, plain.aggregates):
            name = held.get(laid_out.essence(result))
            if name is None and self.held.layout.derived(laid_out, result) is not None:
                found.append((result.name, aggregate))
                continue
            if name is None:
                shown = ", ".join(str(a) for _, a in self.held.aggregates)
                raise self._refused(
                    f"aggregates that it has, {shown}, or that are made of the same partials",
                    f"{result.name}={result.shown}",
                )
            found.append((result.name, name))
        return tuple(found)

    def conditions(self) -> tuple[list[Node], int | None, int | None]:
        """Return the conditions on keys, and the range `[since, until)` of ticks to read."""
        of_keys, since, until = [], None, None
        for predicate in self.stage.predicates:
            for part in _conjuncts(predicate):
                low, high = self._ticks(part)
                if low is not None:
                    since = low if since is None else max(since, low)
                elif high is not None:
                    until = high if until is None else min(until, high)
                elif self._of_keys(part):
                    of_keys.append(part)
                else:
                    raise self._refused(
                        f"conditions on its keys, or that compare {Column(self.held.input.time)} with "
                        f"bounds of {self.wheel.rings[0].shown}", f"where {part}",
                    )  # fmt: skip
        return of_keys, since, until

    def _of_keys(self, part: Node) -> bool:
        # Landmark windows continue until the last row of the stream, so they depend on other keys.
        alone = not any(w.spec.until_end for w in self.node.windows)
        return alone and columns_of(part) <= set(self.held.group_keys)

    def _ticks(self, part: Node) -> tuple[int | None, int | None]:
        """Return the first tick or the end that a comparison of time with a bound of slots sets, if any."""
        if not (isinstance(part, Call) and part.function in _MIRRORED):
            return None, None
        (left, right), how = part.args, part.function
        if isinstance(left, Literal):
            left, right, how = right, left, _MIRRORED[how]
        time = Column(self.held.input.time)
        if left != time or not isinstance(right, Literal) or not isinstance(right.value, int):
            return None, None
        bound = right.value + (how in ("gt", "le"))
        if bound % self.wheel.grain:
            return None, None
        return (bound, None) if how in ("gt", "ge") else (None, bound)


def _conjuncts(node: Node) -> Iterator[Node]:
    if isinstance(node, Call) and node.function == "and":
        for part in node.args:
            yield from _conjuncts(part)
    else:
        yield node
