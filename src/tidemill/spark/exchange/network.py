"""What lies between hosts: how many there are, and how fast they send to each other."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tidemill.core.errors import UserError
from tidemill.spark.exchange.traffic import traffic

RATE = "spark.tidemill.exchange.rate"
"""A setting of Spark's: what each host sends, such as 100mbit or 1gbit. Otherwise it is measured."""
PROBE = 2 << 20
"""Bytes that each host sends to find out. A tenth of them may pass at once, however slow a link is."""
FASTEST = 1.25e9
"""Bytes a second that are assumed where a probe took no time that could be told."""

COUNTED = 10_000_000
"""Rows that each core counts to find out how many cores there are."""
LEAST = 0.25
"""The part of a core that Spark has at least."""

_UNITS = {"kbit": 125.0, "mbit": 125e3, "gbit": 125e6}
_measured: dict[str, dict[str, float]] = {}
"""The rate of links and the cores that there are in fact, of each application."""


@dataclass(frozen=True)
class Links:
    """The hosts of a cluster."""

    hosts: int
    cores: float
    """That are at work when Spark has all of them work."""
    bytes_per_second: float
    """Of each host."""


def links(spark: SparkSession) -> Links:
    """The hosts that run tasks, their cores, and the rate of their links. It is measured once, at first."""
    hosts, cores = host_count(spark), core_count(spark)
    if hosts < 2:
        return Links(hosts, cores, FASTEST)
    known = _measured.setdefault(spark.sparkContext.applicationId, {})
    if "cores" not in known:
        known["cores"] = _cores(spark, cores)
    given = spark.conf.get(RATE, None)
    if given is None and "rate" not in known:
        known["rate"] = _rate(spark, hosts)
    return Links(hosts, known["cores"], known["rate"] if given is None else parse_rate(given))


def host_count(spark: SparkSession) -> int:
    """How many hosts run tasks."""
    return len({str(e.hostPort()).rsplit(":", 1)[0] for e in _workers(spark)})


def core_count(spark: SparkSession) -> int:
    """How many tasks run at a time."""
    return max(1, sum(int(e.totalCores()) for e in _workers(spark)))


def _workers(spark: SparkSession) -> list[Any]:
    found = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    every = [found.apply(i) for i in range(found.size())]
    return [e for e in every if e.id() != "driver"] or every  # in local mode the driver runs tasks


def measure_again(spark: SparkSession) -> None:
    """Forget what was measured of links, which are others now."""
    _measured.get(spark.sparkContext.applicationId, {}).pop("rate", None)


def parse_rate(text: str) -> float:
    """Bytes a second.

    >>> parse_rate("100mbit")
    12500000.0
    """
    for unit, size in _UNITS.items():
        if text.endswith(unit):
            try:
                return float(text[: -len(unit)]) * size
            except ValueError:
                break
    raise UserError(RATE, expected="a rate such as 100mbit or 1gbit", got=repr(text))


def _rate(spark: SparkSession, hosts: int) -> float:
    """Have every host send to all others, and see how long they wait."""

    def noise(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            for target in range(hosts):
                data = [os.urandom(1 << 16) for _ in range(PROBE // hosts // (1 << 16))]
                yield pa.record_batch(
                    {"to": pa.array([target] * len(data), pa.int32()), "data": data}
                )

    rows = spark.range(0, hosts, 1, hosts).mapInArrow(noise, "to int, data binary")
    sent = rows.repartitionById(hosts, "to")
    with traffic(spark) as seen:
        sent.selectExpr("sum(length(data)) AS n").collect()
    last = max(seen.stages, key=lambda s: s.remote_bytes)
    if not last.remote_bytes or not last.wait_seconds:
        return FASTEST
    return min(FASTEST, last.remote_bytes / last.wait_seconds)


def _cores(spark: SparkSession, cores: int) -> float:
    """How many cores are busy when all that Spark counts have something to do: others may use them, too."""
    shares = []
    for _ in range(2):  # the first time, tasks also wait for code to be compiled
        with traffic(spark) as seen:
            spark.range(0, cores * COUNTED, 1, cores).selectExpr("max(xxhash64(id)) AS h").collect()
        busiest = max(seen.stages, key=lambda s: s.run_seconds)
        shares.append(busiest.processor_seconds / max(1e-3, busiest.run_seconds))
    return cores * min(1.0, max(LEAST, *shares))
