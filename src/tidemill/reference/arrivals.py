"""Interval joins that answer on arrival, by definition: each base row from the rows that came before it."""

from __future__ import annotations

from typing import Any

from tidemill.plan.intervals import IntervalJoin
from tidemill.plan.nodes import Filter, Plan, Project, Source, Union, unknown_node
from tidemill.plan.temporal import Lifetime
from tidemill.reference.aggregates import Row
from tidemill.reference.intervals import answer
from tidemill.reference.run import rows_of_node


class Arrivals:
    """Takes one row after another, and answers base rows at once.

    A row of a stream that is base and probe at the same time is a probe row first. Rows that are too late do
    not come here.

    >>> import tidemill as tm
    >>> ask, buy = (tm.stream(n, time="t", schema={"t": "int64"}) for n in ("ask", "buy"))
    >>> came = Arrivals(ask.interval_join(buy, preceding=5).agg(n=tm.count()).plan)
    >>> came.push("buy", {"t": 3}), came.push("ask", {"t": 4}), came.push("buy", {"t": 4})
    ([], [{'t': 4, 'n': 1}], [])
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._came: dict[int, tuple[list[Row], list[Row]]] = {}
        """The base rows and the probe rows of each join so far, by the `id` of its node."""

    def push(self, stream: str, row: Row) -> list[Row]:
        """Return the rows of the result that come when a row of a stream does."""
        return self._given(self._plan, stream, row, {})

    def _given(self, node: Plan, stream: str, row: Row, known: dict[int, list[Row]]) -> list[Row]:
        if id(node) not in known:
            known[id(node)] = self._computed(node, stream, row, known)
        return known[id(node)]

    def _computed(self, node: Plan, stream: str, row: Row, known: Any) -> list[Row]:
        if isinstance(node, Source):
            return [row] if node.name == stream else []
        below = [self._given(one, stream, row, known) for one in node.children()]
        if not isinstance(node, IntervalJoin):
            if not isinstance(node, (Filter, Project, Union, Lifetime)):
                raise unknown_node(node, "reference", "reference/arrivals.py")
            return list(rows_of_node(node, below, {}))
        base, probe = self._came.setdefault(id(node), ([], []))
        probe += below[1]
        found = list[Row]()
        for one in below[0]:
            base.append(one)
            found += answer(node, one, base, probe)
        return found
