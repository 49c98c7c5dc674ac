"""Peers that keep a query running, each in a process of its own.

A peer is a script here. It runs in the interpreter that has its package: this one, or one of those that
`TIDEMILL_PEERS` lists, separated by colons. Some packages cannot be installed beside ours.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import resources
from benchmarks.latency.feed import Feed, Sums

PEERS = {"bytewax": "bytewax_peer.py", "pathway": "pathway_peer.py"}
"""The package of each peer, and its script."""
_FIND = (
    "import sys, importlib.util as u, importlib.metadata as m\n"
    "print(m.version(sys.argv[1]) if u.find_spec(sys.argv[1]) else '')"
)


@dataclass(frozen=True)
class Peer:
    """A script with the interpreter that can run it."""

    package: str
    python: str
    version: str

    def run(self, feed: Feed, rows: int, each: int, rate: int | None = None) -> tuple[Sums, dict[str, Any]]:
        """Return its result over the first events, with `seconds`, or `latencies` where there is a rate."""
        answer = resources.scratch() / f"{self.package}.npz"
        request = {
            "events": str(feed.saved(rows)), "each": each, "rate": rate, "window": feed.seconds,
            "answer": str(answer),
        }  # fmt: skip
        script = Path(__file__).with_name(PEERS[self.package])
        done = subprocess.run(
            [self.python, str(script), json.dumps(request)], capture_output=True, text=True, timeout=600
        )
        if done.returncode:
            raise RuntimeError(f"{self.package} {self.version} failed:\n{done.stderr[-2000:]}")
        with np.load(answer) as found:
            rest = {name: found[name] for name in found.files}
        answer.unlink()
        table = pa.table({name: rest.pop(name) for name in ("k", "start", "s")})
        return Sums(feed, rows, table), {"seconds": float(rest["seconds"]), "latencies": rest["latencies"]}


@functools.cache
def peers() -> dict[str, Peer]:
    """The peers that can run here, by name."""
    pythons = [sys.executable, *filter(None, os.environ.get("TIDEMILL_PEERS", "").split(":"))]
    found: dict[str, Peer] = {}
    for package in PEERS:
        for python in pythons:
            asked = subprocess.run([python, "-c", _FIND, package], capture_output=True, text=True)
            if version := asked.stdout.strip():
                found[package] = Peer(package, python, version)
                break
    return found
