"""What the machines of DIA files run in processes of their own."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any


def read(files: list[str], wanted: list[Any]) -> list[str]:
    """What is wrong with how damaged files are read: anything but the right elements, or our error."""
    from tidemill.core.errors import UserError
    from tidemill.spark.dia.elements import columns_of, decode
    from tidemill.spark.dia.file_sources import _batches, _kind

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


LINES = [f"element {i}" for i in range(3000)]
ELEMENTS = [{"i": i, "s": s} for i, s in enumerate(LINES)]
TARGETS = [f"{what}-{n}" for what in ("lines", "binary") for n in ("one", "many")]


def write(folder: str, rounds: int) -> None:
    """Writes the same elements to free targets, round after round; a line for each that is there."""
    from pyspark.sql import SparkSession

    from tidemill.spark.dia import generate

    spark = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m").getOrCreate()
    )  # fmt: skip
    spark.sparkContext.setLogLevel("OFF")
    elements = generate(spark, len(LINES), parts=3).map(lambda i: {"i": i, "s": f"element {i}"})
    lines = elements.map(lambda e: e.s)
    print("ready", flush=True)
    for n in range(rounds):
        for name in TARGETS:
            made = lines.write_lines if name.startswith("lines") else elements.write_binary
            made(Path(folder) / name, one_file=name.endswith("one"), file_bytes=20_000)
            print(f"written {name}", flush=True)
        if n + 1 < rounds:
            for name in TARGETS:
                target = Path(folder) / name
                shutil.rmtree(target) if target.is_dir() else target.unlink()


def hold(target: str) -> None:
    """Begins a write and stays there, as one that is slow."""
    from tidemill.spark.dia.hidden_directory import hidden_directory

    with hidden_directory(target, "hold") as path:
        (Path(path) / "part-000000-000000-0123abcd.txt").write_text("half")
        print(path, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    hold(sys.argv[2]) if sys.argv[1] == "hold" else write(sys.argv[1], int(sys.argv[2]))
