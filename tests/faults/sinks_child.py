"""A process that writes files over each other until it is killed.

`python -m tests.faults.sinks_child FOLDER`: in turn Parquet, CSV and Arrow, each with rows of one number in
all of them, which goes up. It prints `ready` before the first.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from tidemill.io.sinks import write_csv, write_ipc, write_parquet

WRITERS = {"x.parquet": write_parquet, "x.csv": write_csv, "x.arrow": write_ipc}
ROWS, BATCHES = 20_000, 6
SCHEMA = pa.schema({"t": pa.int64(), "n": pa.int64()})


def batches(number: int) -> Iterator[pa.RecordBatch]:
    for i in range(BATCHES):
        t = np.arange(i * ROWS, (i + 1) * ROWS)
        yield pa.RecordBatch.from_arrays([pa.array(t), pa.array(np.full(ROWS, number))], schema=SCHEMA)


def main(folder: str) -> None:
    print("ready", flush=True)
    for number in itertools.count():
        for name, write in WRITERS.items():
            write(Path(folder) / name, SCHEMA, batches(number))


if __name__ == "__main__":
    main(sys.argv[1])
