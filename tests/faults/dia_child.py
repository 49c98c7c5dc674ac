"""What the machines of DIA files run in processes of their own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def read(files: list[str], wanted: list[Any]) -> list[str]:
    """What is wrong with how damaged files are read: anything but the right elements, or our error."""
    from tidemill.core.errors import UserError
    from tidemill.spark.dia.elements import columns_of, decode
    from tidemill.spark.dia.reading import _batches, _kind

    found = []
    for file in files:
        print(file, flush=True)
        try:
            kind = _kind(file)
            batches = _batches(file, columns_of(kind).to_arrow())
            got = [e for batch in batches for e in decode(batch, kind)]
        except UserError as refused:
            if file not in str(refused):
                found.append(f"{file}: no path in {refused}")
        except Exception as foreign:
            found.append(f"{file}: {type(foreign).__name__}: {foreign}")
        else:
            if repr(got) != repr(wanted):
                found.append(f"{file}: another answer")
    return found


def write(folder: str, count: int) -> None:
    """Writes the same DIA again and again, each time to a target that is free; a line for each that is there."""
    from pyspark.sql import SparkSession

    from tidemill.spark.dia import generate

    spark = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m").getOrCreate()
    )  # fmt: skip
    spark.sparkContext.setLogLevel("OFF")
    elements = generate(spark, 3000, parts=3).map(lambda i: {"i": i, "s": f"element {i}"})
    lines = elements.map(lambda e: e.s)
    print("ready", flush=True)
    for n in range(count):
        target = Path(folder) / f"target{n % 4}"
        if target.exists():
            print(f"again {n}", flush=True)
            target = Path(folder) / f"again{n}-{target.name}"
        one = n % 3 == 0
        if n % 2:
            elements.write_binary(target, one_file=one, file_bytes=20_000)
        else:
            lines.write_lines(target, one_file=one, file_bytes=20_000)
        print(f"written {target}", flush=True)


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]))
