"""Settings of Spark sessions that tests start: many small queries, each of them new to Java."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests import interpreter

JAVA = (
    # Compiling a query well, or checking the bytecode of Spark's own classes, takes longer than it runs.
    "-XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote "
    # Memory is not collected each time that some more classes are loaded.
    "-XX:+UseSerialGC -XX:MetaspaceSize=256m -Xms768m -Xmn400m"
)
FOR_USERS = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Spark writes Java for each query: in `make soak`, and in tests that use the fixture `generated_java`."""
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Spark interprets expressions, as it does itself where the Java would be too long."""
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.sql.shuffle.partitions": "2",
    "spark.python.daemon.module": "tests.spark_daemon",  # Python workers interpret kernels, too
    **(FOR_USERS if interpreter.COMPILED else INTERPRETED),
}


@contextmanager
def generating_java(spark: Any) -> Iterator[None]:
    """Queries that are planned and run inside are compiled by Spark, as they are for users."""
    before = {name: spark.conf.get(name) for name in FOR_USERS}
    for name, value in FOR_USERS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
