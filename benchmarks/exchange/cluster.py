"""A Spark cluster of several hosts on this machine, so that traffic between hosts is real traffic.

Each worker is alone on a host of a `Network`; master and driver are on its bridge. Where that is not allowed,
Spark runs in local mode: it then shuffles the same bytes, but none of them travel.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.exchange.network import Network
from benchmarks.machine import ROOT
from tidemill.demo import start_spark
from tidemill.spark.exchange.network import hosts_of

MASTER, PAGE = 7077, 8080
"""Ports of the master. Its address is its own, so no other run can have them."""
PATIENCE = 60.0
"""Seconds that a part of the cluster may take to come up."""


@dataclass(frozen=True)
class Cluster:
    """A running session and where its executors are."""

    spark: Any
    hosts: tuple[str, ...]
    network: Network | None = None

    @property
    def is_local(self) -> bool:
        """Whether this is local mode, where nothing travels."""
        return self.network is None

    def limit(self, rate: str) -> None:
        """Change the rate of all links, such as `100mbit`. The cluster goes on."""
        if self.network is not None:
            self.network.limit(rate)

    def carried(self) -> int:
        """Bytes that links have carried so far: shuffles, and what Spark's metrics leave out."""
        return 0 if self.network is None else self.network.carried()


@contextmanager
def cluster(hosts: int, rate: str, *, cores: int = 1, memory: str = "2g") -> Iterator[Cluster]:
    """Spark on so many hosts, each with so many cores, behind links of this rate, both ways.

    >>> with cluster(2, "100mbit") as c:        # doctest: +SKIP
    ...     c.spark.range(10).count()
    ...     c.limit("1gbit")
    """
    with ExitStack() as stack:
        network = stack.enter_context(Network(hosts, rate))
        env = _environment()
        _start_master(network, env)
        for i in range(hosts):
            _start_worker(network, i, cores, memory, env)
        # The driver comes up beside the workers: their executors find it as soon as they can.
        # What java.net says of this machine's name may be an address that hosts cannot reach.
        os.environ["SPARK_LOCAL_IP"] = network.address
        driver = network.folder / "driver"
        driver.mkdir()
        spark = start_spark(
            driver,
            spark_master=f"spark://{network.address}:{MASTER}",
            spark_driver_host=network.address,
            spark_driver_bindAddress=network.address,
            spark_executor_memory=memory,
            **_common(hosts * cores),
        )
        stack.callback(spark.stop)
        _until(lambda: hosts_of(spark) == set(network.hosts), f"executors on {network.hosts}", network)
        yield Cluster(spark, network.hosts, network)


@contextmanager
def local(folder: Path, *, cores: int = 2) -> Iterator[Cluster]:
    """Spark in one process, with the same options."""
    os.environ.update(_environment())
    spark = start_spark(folder, spark_master=f"local[{cores}]", **_common(cores))
    try:
        yield Cluster(spark, ("localhost",))
    finally:
        spark.stop()


def _common(cores: int) -> dict[str, str]:
    return {
        "spark_driver_memory": "2g",
        "spark_sql_shuffle_partitions": str(2 * cores),
        "spark_default_parallelism": str(2 * cores),
        # Spark gives up the place of a task's data after 3 s, which a busy machine is soon late by; then
        # cached parts travel, and no shuffle metric says so.
        "spark_locality_wait": "30s",
    }


def _environment() -> dict[str, str]:
    """Python workers are this interpreter, and find the package and the benchmarks.

    They have the rest of our environment too, so kernels are cached where the driver caches them.
    """
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "PYTHONPATH": os.pathsep.join(p for p in paths if p),
        "SPARK_DAEMON_MEMORY": "300m",
        # Master and workers have little to do once they are up: no time for compiling them well.
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }


def _start_master(network: Network, env: dict[str, str]) -> None:
    options = ["--host", network.address, "--port", str(MASTER), "--webui-port", str(PAGE)]
    command = [*_spark_class(), "org.apache.spark.deploy.master.Master", *options]
    network.start("master", command, env={**env, "SPARK_LOCAL_IP": network.address})
    _until(lambda: _is_alive(network), "the master", network)


def _start_worker(network: Network, i: int, cores: int, memory: str, env: dict[str, str]) -> None:
    host = network.hosts[i]
    own = {
        "SPARK_LOCAL_IP": host,
        "SPARK_WORKER_DIR": str(network.folder / f"work-{i}"),
        "SPARK_LOCAL_DIRS": str(network.folder / f"local-{i}"),
    }
    options = ["--host", host, "--cores", str(cores), "--memory", memory]
    url = f"spark://{network.address}:{MASTER}"
    command = [*_spark_class(), "org.apache.spark.deploy.worker.Worker", *options, url]
    network.start(f"worker-{i}", command, host=i, env={**env, **own})


def _spark_class() -> list[str]:
    import pyspark

    return [str(Path(pyspark.__file__).parent / "bin" / "spark-class")]


def _is_alive(network: Network) -> bool:
    """Whether the master takes workers and applications. It says so on its page."""
    # Without proxies: they know nothing of our addresses.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{network.address}:{PAGE}/json/", timeout=5) as page:
            return bool(json.load(page)["status"] == "ALIVE")
    except (OSError, ValueError):  # while it comes up, other pages may answer than the one asked for
        return False


def _until(holds: Callable[[], bool], what: str, network: Network) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            logs = "".join(f"\n{p}:\n{p.read_text()[-1500:]}" for p in network.folder.glob("*.log"))
            raise TimeoutError(f"waited {PATIENCE:.0f} s for {what}{logs}")
        time.sleep(0.05)
