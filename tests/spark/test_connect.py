"""Spark Connect: windows and wheels run, with the answers of this process; the rest says what it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc", reason="needs pyspark[connect]")

from tests.examples import later
from tests.spark.connect_child import CASES

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def connect(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What was wrong in each case that this run has, of a process that ran all of them."""
    asked = [item.callspec.params["case"] for item in request.session.items if item.path == request.path]
    env = {
        **os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1",  # so that the server takes any free port
    }  # fmt: skip
    folder = str(tmp_path_factory.mktemp("connect"))
    command = [sys.executable, "-m", "tests.spark.connect_child", folder, *asked]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULTS ")]
    assert lines, done.stderr
    found: dict[str, str] = json.loads(lines[0].removeprefix("RESULTS "))
    return found


LATER = ("jvm", "panes", "partials", "colocated", "expressions_in_python")
"""Days of a calendar go in panes, and wheels go to workers of Python, by the same steps: these are for the
soak."""


@pytest.mark.parametrize("case", [c for c in CASES if c not in LATER] + later(*LATER))
def test_under_connect(connect: dict[str, str], case: str) -> None:
    assert connect[case] == ""
