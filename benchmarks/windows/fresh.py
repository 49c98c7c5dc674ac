"""A fresh process that measures itself: what it printed as JSON, and its peak of resident memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from benchmarks import resources
from benchmarks.machine import ROOT

# ru_maxrss would not do: Linux keeps the peak of the parent across fork and exec.
_PEAK = """
import re as _re
def _status_mb(name):
    return int(_re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read()).group(1)) // 1024
def peak_mb():
    return _status_mb("VmHWM")
def resident_mb():
    return _status_mb("VmRSS")
"""


def fresh(code: str, *arguments: object) -> dict[str, Any]:
    """Run code in a new interpreter. It may call `peak_mb()` and `resident_mb()`; it prints a JSON object."""
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in paths if p)}
    # Byte code is kept, as in any usual installation; but not in the tree.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    env["PYTHONPYCACHEPREFIX"] = str(resources.scratch() / "pycache")
    done = subprocess.run(
        [sys.executable, "-c", _PEAK + code, *map(str, arguments)],
        env=env, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"a fresh process failed:\n{done.stderr}")
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found
