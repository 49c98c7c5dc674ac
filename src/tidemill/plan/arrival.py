"""Queries that answer base rows of interval joins when they come, from what has come so far (paper 004).

The rule: a base row is answered as `run` would answer it if its inputs ended there. What it sees are the rows
that came before it, but for those that were late by more than the lateness of the query, which count nowhere.
"""

from __future__ import annotations

from tidemill.core.errors import UserError
from tidemill.plan.intervals import IntervalJoin
from tidemill.plan.nodes import Plan, leaves_of

ANSWERS = EXACT, ON_ARRIVAL = ("exact", "on arrival")
"""When a live query answers: when a row can no longer change, or at once."""


def require_answers(plan: Plan, answers: str, *others: tuple[str, object]) -> bool:
    """Return whether a live query answers on arrival; raise an error if it cannot. `others` are options."""
    if answers not in ANSWERS:
        raise UserError("live", expected=f"answers= one of {list(ANSWERS)}", got=repr(answers))
    if answers == EXACT:
        return False
    if not joins_of(plan):
        raise UserError(
            "live", expected=f"an interval join, with answers={answers!r}", got=str(plan),
            hint="other rows come when they can no longer change, or with tm.Emit(early=...)",
        )  # fmt: skip
    for name, given in others:
        if given is not None:
            raise UserError("live", expected=f"no {name}= with answers={answers!r}", got=f"{given!r:.80}")
    return True


def joins_of(plan: Plan) -> list[IntervalJoin]:
    """Return the interval joins of a plan."""
    return [node for node in plan.walk() if isinstance(node, IntervalJoin)]


def lateness_of(plan: Plan) -> int:
    """Return how late rows may come to a query, in ticks: the greatest lateness of its interval joins."""
    return max((join.lateness for join in joins_of(plan)), default=0)


def base_streams(plan: Plan) -> frozenset[str]:
    """Return the streams whose rows are base rows.

    >>> import tidemill as tm
    >>> ask, buy = (tm.stream(n, time="t", schema={"t": "int64"}) for n in ("ask", "buy"))
    >>> both = ask.interval_join(buy, preceding=5).agg(n=tm.count()).last_join(ask)
    >>> sorted(base_streams(both.plan)), sorted(probe_streams(both.plan))
    (['ask'], ['ask', 'buy'])
    """
    return frozenset[str]().union(*(_origins(join.base) for join in joins_of(plan)))


def probe_streams(plan: Plan) -> frozenset[str]:
    """Return the streams whose rows are probe rows, or make some."""
    return frozenset[str]().union(*(_origins(join.probe) for join in joins_of(plan)))


def _origins(plan: Plan) -> frozenset[str]:
    """Return the streams whose rows make rows of a plan come."""
    if isinstance(plan, IntervalJoin):
        return _origins(plan.base)
    if not plan.children():
        return frozenset(leaves_of(plan))
    return frozenset[str]().union(*map(_origins, plan.children()))
