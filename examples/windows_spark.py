"""Windows on Spark: the query of `windows_local`, on a DataFrame, with the same answer.

    python -m examples.windows_spark

In a job of yours, `SparkSession.builder.getOrCreate()` takes the place of `session()`.
"""

from __future__ import annotations

from typing import Any

from examples.session import session
from examples.windows_local import clicks, per_ad


def on_spark(spark: Any) -> Any:
    """Return the answer as a DataFrame, which is computed when it is asked for."""
    return per_ad.on_spark(spark).run(clicks=spark.createDataFrame(clicks.run()))


def main() -> None:
    with session() as spark:
        answer = on_spark(spark)
        answer.orderBy("n", "spend", ascending=False).show(5)
        there, here = answer.count(), per_ad.run().num_rows
        print(f"{there} windows on Spark, {here} in process")


if __name__ == "__main__":
    main()
