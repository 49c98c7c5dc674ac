"""Several small shuffle partitions, so that order and layout are put to the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

SETTINGS = {
    "spark.sql.shuffle.partitions": "5",
    # Adaptive execution merges partitions below this size: some, and differently in other plans.
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "150b",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1b",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
}


@pytest.fixture(autouse=True)
def _settings(request: pytest.FixtureRequest) -> Iterator[None]:
    """For tests with Spark. The others do not start it: they may run beside it, in another process."""
    if "spark" not in request.fixturenames:
        yield
        return
    spark = request.getfixturevalue("spark")
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield
    for name, old in before.items():
        if old is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, old)


@pytest.fixture(scope="session")
def dia_of(spark: Any) -> Callable[..., Any]:
    """A DIA with exactly these partitions: `dia_of([[1, 2], [], [3]])`."""
    from tidemill.spark.dia import generate

    def make(layout: list[list[Any]], returns: Any = int) -> Any:
        indexes = generate(spark, len(layout), parts=len(layout))
        return indexes.flat_map(lambda i: layout[i], returns=returns).cache()

    return make
