"""The scripts of the benchmark of starts on few rows: all systems give the same answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from benchmarks import resources, start

pytestmark = pytest.mark.interpreted


@pytest.fixture(autouse=True, scope="module")
def _scratch() -> Iterator[None]:
    yield
    resources.close()


@pytest.mark.parametrize("question", start.QUERIES)
def test_answers_are_the_same(
    question: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["script", start.file_of(300)])
    answers = {}
    for system, query in start.QUERIES[question].items():
        exec(start.code_of(system, query, 0.0), {})
        told = json.loads(capsys.readouterr().out)
        assert 0 < told["repeated"] <= told["second"]
        answers[system] = told["answer"]
    start.case_of("cold", question, 300).check(answers)
    assert len(answers) == 3
