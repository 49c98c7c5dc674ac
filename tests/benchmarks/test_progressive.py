"""Every case of the benchmark of progressive queries on few rows: the last report is the answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks import progressive, resources
from benchmarks.data import Shape
from benchmarks.harness import HOME, Case, Effort, run_case

ONCE = Effort(repeats=1, at_most=1, enough=0.0, budget=60.0)
LOCAL = [case for case in progressive.of_shape(Shape(3_000, 5)) if case.group != "spark"]

pytestmark = pytest.mark.interpreted


@pytest.fixture(autouse=True, scope="module")
def _scratch() -> Iterator[None]:
    yield
    resources.close()


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in LOCAL])
def test_the_last_report_is_the_answer(case: Case) -> None:
    data = case.data()
    found: dict[str, Any] = {name: system(data) for name, system in case.systems.items()}
    case.check(found)
    assert 0 < len(found[progressive.FIRST].answer) <= len(found[HOME])


def test_a_case_says_both_ratios() -> None:
    result = run_case(LOCAL[0], ONCE)
    assert set(result.seconds) == {HOME, progressive.PLAIN, progressive.FIRST}
    assert set(result.measured) >= {"total over run", "first sooner by"}
