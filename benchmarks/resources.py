"""What a run opens once and closes at its end: a scratch directory, a Spark session."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT

_open = ExitStack()


def close() -> None:
    """Stop Spark, delete all scratch files."""
    _open.close()
    scratch.cache_clear()
    spark.cache_clear()


@functools.cache
def scratch() -> Path:
    """A directory for data; it goes away with the run."""
    folder = tempfile.TemporaryDirectory(prefix="tidemill-bench-", ignore_cleanup_errors=True)
    return Path(_open.enter_context(folder))


@functools.cache
def spark() -> Any:
    """A Spark session on two cores, the same for everything compared on Spark."""
    from pyspark.sql import SparkSession

    # Spark's Python workers must be the interpreter that has the packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
    folder = scratch() / "spark"
    folder.mkdir()
    logging = folder / "log4j2.properties"
    logging.write_text(
        "rootLogger.level = error\n"
        "logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer\n"
        "logger.gateway.level = error\n"
        "rootLogger.appenderRef.console.ref = console\n"
        "appender.console.type = Console\n"
        "appender.console.name = console\n"
        "appender.console.target = SYSTEM_ERR\n"
        "appender.console.layout.type = PatternLayout\n"
        "appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n\n"
    )
    options = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{logging}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "6g",
        "spark.local.dir": str(folder),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.window.segmentTree.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("tidemill-benchmarks")
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    _open.callback(session.stop)
    return session
