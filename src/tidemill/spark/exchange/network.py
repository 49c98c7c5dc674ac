"""The hosts of a cluster: how many there are, and how fast they send to each other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from tidemill.core.errors import UserError
from tidemill.spark.exchange.traffic import traffic
from tidemill.spark.private import executors
from tidemill.spark.workers import Batches, map_batches

RATE = "spark.tidemill.exchange.rate"
"""A setting of Spark's: what each host sends, such as 100mbit or 1gbit. Otherwise it is measured."""
PROBE = 2 << 20
"""Bytes that each host sends to find out. A tenth of them may pass at once, however slow a link is."""
SLOW = 20e6
"""Bytes a second of a link up to which a probe is sent for long enough; of a faster one more are needed."""
FASTEST = 1.25e9
"""Bytes a second that are assumed where a probe took no time that could be told."""

_UNITS = {"kbit": 125.0, "mbit": 125e3, "gbit": 125e6}
_measured: dict[str, float] = {}


@dataclass(frozen=True)
class Links:
    """The hosts of a cluster."""

    hosts: int
    cores: int
    bytes_per_second: float
    """Of each host."""


def links(spark: SparkSession) -> Links:
    """The hosts that run tasks, their cores, and the rate of their links. It is measured once, at first."""
    hosts, cores = host_count(spark), core_count(spark)
    if hosts < 2:
        return Links(hosts, cores, FASTEST)
    given = spark.conf.get(RATE, None)
    if given is not None:
        return Links(hosts, cores, parse_rate(given))
    application = spark.sparkContext.applicationId
    if application not in _measured:
        _rate(spark, hosts, PROBE)  # executors that have just started wait for themselves, not for links
        rate = _rate(spark, hosts, PROBE)
        _measured[application] = rate if rate < SLOW else max(rate, _rate(spark, hosts, 8 * PROBE))
    return Links(hosts, cores, _measured[application])


def host_count(spark: SparkSession) -> int:
    """How many hosts run tasks."""
    return len(hosts_of(spark))


def hosts_of(spark: SparkSession) -> set[str]:
    """The hosts that run tasks."""
    return {host for host, _ in executors(spark)}


def core_count(spark: SparkSession) -> int:
    """How many tasks run at a time."""
    return max(1, sum(cores for _, cores in executors(spark)))


def measure_again(spark: SparkSession) -> None:
    """Forget the measured rate of links, and measure again."""
    _measured.pop(spark.sparkContext.applicationId, None)


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


def _rate(spark: SparkSession, hosts: int, probe: int) -> float:
    """Have every host send so many bytes to all others, and see how long they wait."""

    def noise(batches: Batches) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            for target in range(hosts):
                data = [os.urandom(1 << 16) for _ in range(max(1, probe // hosts // (1 << 16)))]
                yield pa.record_batch({"to": pa.array([target] * len(data), pa.int32()), "data": data})

    rows = map_batches(spark.range(0, hosts, 1, hosts), noise, "to int, data binary")
    sent = rows.repartitionById(hosts, "to")
    with traffic(spark) as seen:
        sent.selectExpr("sum(length(data)) AS n").collect()
    last = max(seen.stages, key=lambda s: s.remote_bytes)
    if not last.remote_bytes or not last.wait_seconds:
        return FASTEST
    return min(FASTEST, last.remote_bytes / last.wait_seconds)
