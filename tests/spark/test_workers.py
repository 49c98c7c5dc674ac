"""Spark's Python workers have Tidemill, or one sentence says what to set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyspark

from tidemill.core.errors import UnsupportedError
from tidemill.spark import private

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def bare_job(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a script saw whose `python3` has no packages, and which nobody told of PYSPARK_PYTHON."""
    bare = tmp_path_factory.mktemp("bin") / "python3"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    ours = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH")
    env = {n: v for n, v in os.environ.items() if n not in ours}
    env["PATH"] = f"{bare.parent}:/usr/bin:/bin"
    command = [sys.executable, str(ROOT / "tests/spark/worker_child.py"), str(ROOT / "src"), str(bare)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stderr
    found: dict[str, Any] = json.loads(lines[0].removeprefix("FOUND "))
    return found


def test_on_this_machine_it_just_works(bare_job: dict[str, Any]) -> None:
    assert [row["n"] for row in bare_job["sessions"]] == [2, 1]
    assert set(bare_job["workers"]) == {bare_job["driver"]}
    assert bare_job["by default"] == "python3" and bare_job["left alone"]


def test_workers_without_tidemill_are_found_before_the_job(bare_job: dict[str, Any]) -> None:
    assert "expected Python workers of Spark that import tidemill" in bare_job["refused"]
    assert "set PYSPARK_PYTHON" in bare_job["refused"] and len(bare_job["refused"].splitlines()) == 1


def test_another_pyspark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert private.release() in private.WRITTEN_FOR
    monkeypatch.setattr(pyspark, "__version__", "4.4.0")
    with pytest.raises(UnsupportedError, match=r"PySpark 4\.4\.0: it was written for 4\.2 and 4\.3 — inst"):
        private.release()


def test_every_door_to_the_jvm_asks_for_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"{name} of another PySpark")

    monkeypatch.setattr(pyspark, "__version__", "5.0.0")
    doors = private._session, private._context, private._jvm, private._execution, private.unpersist_with
    for door in doors:
        with pytest.raises(UnsupportedError, match=r"PySpark 5\.0\.0"):
            door(Nothing())
