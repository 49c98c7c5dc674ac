"""Where numbers came from: the machine, and the versions of everything compared."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import tidemill

PACKAGES = ("duckdb", "polars", "pyspark", "pyarrow", "numpy", "numba")
ROOT = Path(__file__).resolve().parent.parent


def machine() -> dict[str, object]:
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
    }


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "tidemill": tidemill.__version__}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found | _output("java", ["java", "-version"], r'"([^"]+)"') | _commit()


def _cpu() -> str:
    try:
        names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def _commit() -> dict[str, str]:
    found = _output("commit", ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], r"(\w+)")
    status = ["git", "-C", str(ROOT), "status", "--porcelain", "src"]
    if found and _output("changed", status, r"(\S)"):
        found["commit"] += " and changes"
    return found


def _output(name: str, command: list[str], pattern: str) -> dict[str, str]:
    if shutil.which(command[0]) is None:
        return {}
    done = subprocess.run(command, capture_output=True, text=True)
    match = re.search(pattern, done.stdout + done.stderr)
    return {name: match.group(1)} if done.returncode == 0 and match else {}
