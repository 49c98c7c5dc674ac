"""A node that a rule or an engine does not know is refused by name, when the plan is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import tidemill as tm
from tidemill import col
from tidemill.core.errors import UnsupportedError
from tidemill.core.schema import Schema
from tidemill.local.explain import describe as describe_local
from tidemill.local.run import run as run_local
from tidemill.optimize.optimizer import RULES, optimize, with_wheels
from tidemill.plan.format import format_plan
from tidemill.plan.nodes import Filter, Plan
from tidemill.plan.rewrite import map_expressions
from tidemill.plan.stages import stage_of
from tidemill.reference.run import run as run_reference

S = tm.stream("s", time="t", schema={"t": "int64", "x": "int64"})


@dataclass(frozen=True)
class Sample(Plan):
    """A node that nobody has heard of."""

    input: Plan
    share: float

    @property
    def schema(self) -> Schema:
        return self.input.schema

    @property
    def time(self) -> str:
        return self.input.time

    def __str__(self) -> str:
        return f"sample {self.share}"


SAMPLE = Sample(S.where(col.x > 1).plan, 0.5)
PLANS = [SAMPLE, Filter(SAMPLE, S.where(col.x > 2).plan.predicate)]  # type: ignore[attr-defined]


def refuses(act: Callable[[], Any], who: str) -> None:
    with pytest.raises(UnsupportedError) as raised:
        act()
    text = str(raised.value)
    assert text.startswith(f"the {who} cannot run the plan node Sample (sample 0.5)")
    assert "add a case for Sample to " in text


@pytest.mark.parametrize("plan", PLANS, ids=["on top", "inside"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_rule_refuses_it(rule: Callable[[Plan], Plan], plan: Plan) -> None:
    refuses(lambda: rule(plan), f"rule {rule.__name__}")


@pytest.mark.parametrize("plan", PLANS, ids=["on top", "inside"])
def test_every_engine_refuses_it(spark: Any, plan: Plan) -> None:
    from tidemill.spark.batch.explain import describe as describe_spark
    from tidemill.spark.batch.run import frame_of

    refuses(lambda: with_wheels(plan, {}), "rule use_wheel")
    refuses(lambda: optimize(plan), f"rule {RULES[0].__name__}")
    refuses(lambda: run_reference(plan, {"s": []}), "reference engine")
    refuses(lambda: list(run_local(plan, {"s": []})), "local engine")
    refuses(lambda: frame_of(plan, lambda leaf: spark.range(0)), "spark engine")
    for describe in (describe_local, describe_spark):
        refuses(lambda describe=describe: describe(plan), "function stage_of")


def test_what_looks_at_one_node_refuses_it() -> None:
    refuses(lambda: map_expressions(SAMPLE, lambda e: e), "function map_expressions")
    refuses(lambda: stage_of(SAMPLE), "function stage_of")


def test_it_is_refused_when_the_query_is_optimised_not_when_it_runs() -> None:
    query = tm.Stream(PLANS[1])
    refuses(lambda: query.optimized, f"rule {RULES[0].__name__}")
    refuses(query.explain, f"rule {RULES[0].__name__}")


def test_a_plan_can_be_shown_whatever_is_in_it() -> None:
    assert format_plan(SAMPLE).splitlines()[0] == "sample 0.5"
