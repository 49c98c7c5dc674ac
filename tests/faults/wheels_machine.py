"""Runs cases in processes of their own, so that a crash or a hang is one case and not the end."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0
"""Seconds after which a case hangs. Kernels may have to be compiled, on a machine that is busy."""


def run_cases(
    made: Path, cases: list[dict[str, Any]], work: Path, child: str = "tests.faults.wheels_child"
) -> list[dict[str, Any]]:
    """The outcome of each case: an answer, an error of ours, or what must not be."""
    listed = work / "cases.json"
    listed.write_text(json.dumps(cases))
    outcomes: list[dict[str, Any]] = []
    while len(outcomes) < len(cases):
        outcomes += _until_it_dies(child, made, listed, len(outcomes), len(cases), work)
    return outcomes


def _until_it_dies(
    module: str, made: Path, listed: Path, first: int, end: int, work: Path
) -> list[dict[str, Any]]:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", module, str(made), str(listed), str(first)]
    outcomes: list[dict[str, Any]] = []
    with (
        (work / "child.err").open("w+") as errors,
        subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE, stderr=errors
        ) as child,
    ):
        for line in _lines(child):
            if line.startswith("end "):
                outcomes.append(json.loads(line.split(" ", 2)[2]))
        if first + len(outcomes) < end:
            why = "hangs" if child.poll() is None else f"ends with {child.returncode}"
            child.kill()
            errors.seek(0)
            outcomes.append({"died": f"the process {why}: {errors.read()[-2000:]}"})
    return outcomes


def _lines(child: subprocess.Popen[bytes]) -> Any:
    """What a child says, as long as it does not keep quiet for too long."""
    assert child.stdout is not None
    descriptor, rest, since = child.stdout.fileno(), b"", time.monotonic()
    while time.monotonic() - since < PATIENCE:
        if not select.select([descriptor], [], [], 1.0)[0]:
            continue
        block = os.read(descriptor, 1 << 16)
        if not block:
            child.wait(PATIENCE)
            return
        since = time.monotonic()
        *whole, rest = (rest + block).split(b"\n")
        yield from (line.decode() for line in whole)


def wrong(case: dict[str, Any], outcome: dict[str, Any], right: list[Any]) -> str:
    """What is not as it must be; nothing if all is well."""
    if "died" in outcome or "foreign" in outcome:
        return str(outcome)
    if "refused" in outcome:
        return "" if outcome["path"] else f"no path in: {outcome['refused']}"
    must_be_right = case["verify"] and not case.get("sealed")
    if must_be_right and outcome["answer"] != right:
        return f"answers {outcome['answer']} where {right} is right"
    return ""
