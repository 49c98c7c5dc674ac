"""TPC-H, query 4 (paper 002, section 3.4.3): orders with their lines.

    python -m examples.orders

Orders and their lines were written together, so they are on one host, whatever it is: hardly any must travel.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from examples.session import needed, session
from tidemill.spark.exchange import join, report

QUARTER = "o_orderdate >= DATE'1993-07-01' AND o_orderdate < DATE'1993-10-01'"
LATE = "l_commitdate < l_receiptdate"


def orders_with_lines(orders: Any, lines: Any, detect: str = "auto", how: str = "inner") -> Any:
    """All columns of both, joined by the key of the order; it is called `orderkey`."""
    left = lines.withColumnRenamed("l_orderkey", "orderkey")
    right = orders.withColumnRenamed("o_orderkey", "orderkey")
    return join(left, right, ["orderkey"], how, detect=detect)


def priorities(orders: Any, lines: Any, detect: str = "auto") -> Any:
    """The query itself: orders of a quarter with a line that came late, by priority."""
    late = lines.where(LATE).withColumnRenamed("l_orderkey", "orderkey")
    placed = orders.where(QUARTER).withColumnRenamed("o_orderkey", "orderkey")
    found = join(placed, late, ["orderkey"], "semi", detect=detect)
    return found.groupBy("o_orderpriority").count().orderBy("o_orderpriority")


def generate(folder: Path, scale: float, parts: int) -> None:
    """Write `orders` and `lineitem` as `tpchgen-cli` makes them; part i of both is about the same orders."""
    command = [
        needed("tpchgen-cli", "pip install tpchgen-cli"), "parquet", "--quiet", "--scale-factor", str(scale),
        "--tables", "orders,lineitem", "--parts", str(parts), "--output-dir", str(folder),
    ]  # fmt: skip
    subprocess.run(command, check=True)


def tables(spark: Any, folder: Path, scale: float = 0.01) -> tuple[Any, Any]:
    """Both tables, generated into a folder."""
    generate(folder, scale, parts=2)
    return spark.read.parquet(str(folder / "orders")), spark.read.parquet(str(folder / "lineitem"))


def main() -> None:
    needed("tpchgen-cli", "pip install tpchgen-cli")
    with session() as spark, tempfile.TemporaryDirectory() as folder:
        orders, lines = tables(spark, Path(folder))
        with report(spark) as seen:
            priorities(orders, lines, detect="on").show()
        print(seen)


if __name__ == "__main__":
    main()
