"""Count the hosts of a cluster, and measure the rate of their links."""

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
"""A Spark setting: the send rate of each host, such as 100mbit or 1gbit. By default it is measured."""
PROBE = 2 << 20
"""Bytes that each host sends in a probe. About a tenth may pass without delay, however slow the link is."""
SLOW = 20e6
"""Links up to this rate, in bytes a second, are measured by one probe; faster ones need a larger probe."""
FASTEST = 1.25e9
"""The assumed rate, in bytes a second, if a probe took no measurable time."""

_UNITS = {"kbit": 125.0, "mbit": 125e3, "gbit": 125e6}
_measured: dict[str, float] = {}


@dataclass(frozen=True)
class Links:
    """The hosts of a cluster."""

    hosts: int
    cores: int
    bytes_per_second: float
    """The send rate of each host."""


def links(spark: SparkSession) -> Links:
    """The hosts that run tasks, their cores, and the rate of their links, measured once per application."""
    hosts, cores = host_count(spark), core_count(spark)
    if hosts < 2:
        return Links(hosts, cores, FASTEST)
    given = spark.conf.get(RATE, None)
    if given is not None:
        return Links(hosts, cores, parse_rate(given))
    application = spark.sparkContext.applicationId
    if application not in _measured:
        _rate(spark, hosts, PROBE)  # warm-up: new executors are slower than their links
        rate = _rate(spark, hosts, PROBE)
        _measured[application] = rate if rate < SLOW else max(rate, _rate(spark, hosts, 8 * PROBE))
    return Links(hosts, cores, _measured[application])


def host_count(spark: SparkSession) -> int:
    """The number of hosts that run tasks."""
    return len(hosts_of(spark))


def hosts_of(spark: SparkSession) -> set[str]:
    """The hosts that run tasks."""
    return {host for host, _ in executors(spark)}


def core_count(spark: SparkSession) -> int:
    """The number of tasks that run at a time."""
    return max(1, sum(cores for _, cores in executors(spark)))


def measure_again(spark: SparkSession) -> None:
    """Drop the measured rate of links, so that the next use measures again."""
    _measured.pop(spark.sparkContext.applicationId, None)


def parse_rate(text: str) -> float:
    """Parse a rate into bytes a second.

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
    """Let every host send `probe` bytes to the others, and divide the bytes by the time of waiting."""

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
