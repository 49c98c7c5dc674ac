"""The cluster that is up and the tables on it: one of each at a time, kept for as long as they serve."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import resources
from benchmarks.exchange.cluster import Cluster, cluster, local
from benchmarks.exchange.load import load
from benchmarks.exchange.plain import Tables
from tidemill.spark.exchange.network import links, measure_again

LOCAL = 0
"""As the number of hosts: none, but local mode."""


@dataclass(frozen=True)
class Placed:
    """A cluster whose links have the rate asked for, and tables in its memory."""

    cluster: Cluster
    tables: Tables
    first: bool
    """Whether this program has not been run on this cluster before."""


class _Running:
    def __init__(self) -> None:
        self._stack = ExitStack()
        self._hosts: int | None = None
        self._cluster: Cluster | None = None
        self._folders: Mapping[str, Path] = {}
        self._tables: dict[str, Any] = {}
        self._run: set[str] = set()

    def place(self, hosts: int, rate: str, program: str, folders: Mapping[str, Path]) -> Placed:
        cluster = self._on(hosts, rate)
        cluster.limit(rate)
        # Links have changed under a session that goes on. They are measured once, not in every run.
        measure_again(cluster.spark)
        links(cluster.spark)
        if folders != self._folders:
            for df in self._tables.values():
                df.unpersist(blocking=True)
            self._folders, self._tables = {}, {}
            for name, folder in folders.items():
                self._tables[name] = load(cluster, folder)
            self._folders = dict(folders)
        first = program not in self._run
        self._run.add(program)
        return Placed(cluster, dict(self._tables), first)

    def close(self) -> None:
        self._stack.close()
        self._hosts, self._cluster, self._folders, self._tables, self._run = None, None, {}, {}, set()

    def _on(self, hosts: int, rate: str) -> Cluster:
        if self._cluster is None or hosts != self._hosts:
            self.close()
            resources.at_end(self.close)
            where = local(_folder()) if hosts == LOCAL else cluster(hosts, rate)
            self._cluster, self._hosts = self._stack.enter_context(where), hosts
        return self._cluster


def _folder() -> Path:
    folder = resources.scratch() / "local"
    folder.mkdir(exist_ok=True)
    return folder


_running = _Running()
place = _running.place
