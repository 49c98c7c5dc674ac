"""A job as users run it, `.venv/bin/python job.py`: `tidemill` is where argv says, workers are to find it."""

from __future__ import annotations

import json
import os
import sys

if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])

import pyarrow as pa
from pyspark.sql import SparkSession

import tidemill as tm
from tidemill.core.errors import UserError


def main() -> None:
    builder = SparkSession.builder.master("local[1]")
    for name, value in {
        "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1", "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
        "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
    }.items():  # fmt: skip
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    context = spark.sparkContext
    before = context.pythonExec, dict(context.environment)
    stream = tm.stream("rows", time="t", schema={"t": "int64", "k": "string"})
    table = pa.table({"t": [1, 2, 9], "k": ["a", "a", "a"]})
    df = spark.createDataFrame(table)
    where = tm.udf(_where, returns="string")
    found = {
        "sessions": stream.group_by("k").window(tm.session(3)).agg(n=tm.count())
        .on_spark(spark).run(rows=df).toArrow().to_pylist(),
        "workers": stream.select(w=where("k")).on_spark(spark).run(rows=df).toArrow()["w"].to_pylist(),
        "driver": _where(""),
        "left alone": (context.pythonExec, dict(context.environment)) == before,
        "by default": context.pythonExec,
    }  # fmt: skip
    # Somebody asks for another interpreter, which has nothing: that is respected, and said.
    os.environ["PYSPARK_PYTHON"] = context.pythonExec = sys.argv[2]
    try:
        stream.select(w=where("k")).on_spark(spark).run(rows=df)
    except UserError as refused:
        found["refused"] = str(refused)
    print("FOUND " + json.dumps(found))


def _where(_: str) -> str:
    import sys

    return f"{sys.executable} {os.path.dirname(sys.modules['tidemill'].__file__ or '')}"


if __name__ == "__main__":
    main()
