"""Python workers of Spark: what runs in them, and that they have what it needs."""

from __future__ import annotations

import functools
import gc
import importlib
import os
import site
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemill.core.errors import UserError
from tidemill.spark.private import (
    JavaError,
    is_connect,
    java_message,
    session_id,
    worker_executable,
    worker_python,
)

Batches = Iterable[pa.RecordBatch]
Task = Callable[[Batches], Iterator[pa.RecordBatch]]
"""What runs on the batches of one partition."""


def map_batches(df: DataFrame, task: Task, schema: T.StructType | str) -> DataFrame:
    """`df.mapInArrow`, in workers that have Tidemill."""
    with tidemill_there(df.sparkSession):
        return df.mapInArrow(_settled(task), schema)


def arrow_function(function: Callable[..., pa.Array], returns: T.DataType, args: list[Column]) -> Column:
    """A column that a function makes of arrays, in workers that have Tidemill."""
    with tidemill_there(SparkSession.active()):
        run: Callable[..., Column] = F.arrow_udf(function, returns)  # type: ignore[attr-defined]
        return run(*args)


def _settled(task: Task) -> Task:
    """A task that has the collector forget what was imported.

    After each task, Spark's worker collects garbage, and goes through all of Numba for it: 20 to 50 ms.
    """

    @functools.wraps(task)
    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        yield from task(batches)
        if not gc.get_freeze_count():  # once, when the first task has imported what it needs
            gc.collect()
            gc.freeze()

    return run


# --- which Python, and what it has ----------------------------------------------------------------


@contextmanager
def tidemill_there(spark: SparkSession) -> Iterator[None]:
    """Functions for workers that are made in this block find Tidemill there, or there is a `UserError`.

    On this machine workers are of this interpreter, unless PYSPARK_PYTHON names another. What others have
    is found out by one small job, the first time.
    """
    ours = _ours(spark)
    with ours or nullcontext():
        if ours is None and session_id(spark) not in _checked:
            _check(spark)
            _checked.add(session_id(spark))
        yield


_tidemill = sys.modules["tidemill"]
_checked: set[str] = set()
"""Sessions whose workers have been asked."""


def _ours(spark: SparkSession) -> AbstractContextManager[None] | None:
    """Workers of this interpreter, where they are on this machine and nobody asked for others."""
    if is_connect(spark) or not str(spark.sparkContext.master).startswith("local"):
        return None
    if os.environ.get("PYSPARK_PYTHON", sys.executable) != sys.executable:
        return None
    if worker_executable(spark) not in ("python3", sys.executable):
        return None
    root = os.path.dirname(os.path.dirname(os.path.abspath(_tidemill.__file__ or "")))
    installed = [*site.getsitepackages(), site.getusersitepackages()]
    return worker_python(spark, sys.executable, None if root in installed else root)


def _check(spark: SparkSession) -> None:
    try:
        ((found,),) = spark.range(1).mapInArrow(_look, "found string").collect()
    except (PySparkException, JavaError) as failed:
        lines = [line.strip() for line in java_message(failed).splitlines() if line.strip()]
        told = [line for line in lines if "Error: " in line or "Exception: " in line]
        found = (told or lines or [type(failed).__name__])[-1]
    if found != _tidemill.__version__:
        where = "where the Connect server starts" if is_connect(spark) else "before the session starts"
        raise UserError(
            "workers", expected=f"Python workers of Spark that import tidemill {_tidemill.__version__}",
            got=found, hint=f"set PYSPARK_PYTHON (or spark.pyspark.python) {where} to a Python that has it, "
            f"such as {sys.executable}, or send it along by --py-files or --archives",
        )  # fmt: skip


def _look(batches: Any) -> Any:
    """The version of Tidemill that a worker has, if it has all that Tidemill needs."""
    arrow, _, ours = map(importlib.import_module, ("pyarrow", "numba", "tidemill"))
    for _ in batches:
        yield arrow.record_batch({"found": [ours.__version__]})


_look.__module__ = "__main__"  # so that it is sent by value: it is to run where there is no Tidemill
