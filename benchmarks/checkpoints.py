"""What a checkpoint of a live query costs where little of a large state changed.

`python -m benchmarks.checkpoints` prints it. Times are of the process (CPU) and of the clock, which includes
waiting for the disk.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import tidemill as tm
from tidemill import col
from tidemill.local.live import Live

STREAM = tm.stream("s", time="t", schema={"t": "int64", "k": "int64", "x": "float64"})
EVERY = 60


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--keys", type=int, default=1_000_000)
    options.add_argument("--panes", type=int, default=6)
    options.add_argument("--changed", type=float, default=0.01, help="the share of keys that change")
    options.add_argument("--directory", help="where to write; a new temporary directory by default")
    given = options.parse_args()
    folder = Path(tempfile.mkdtemp(dir=given.directory))
    try:
        measure(folder, given.keys, given.panes, given.changed)
    finally:
        shutil.rmtree(folder)


def measure(folder: Path, keys: int, panes: int, changed: float) -> None:
    """Save a state of `keys` keys in each of some panes, whole and after a share of the keys changed."""
    window = tm.hopping(EVERY * panes, every=EVERY)
    query = STREAM.group_by("k").window(window).agg(n=tm.count(), sum=tm.sum(col.x), max=tm.max(col.x))
    live, pick, few = query.live(tm.Disorder(slack=EVERY // 2)), np.random.default_rng(1), int(changed * keys)
    for pane in range(panes):
        push(live, pane * EVERY, pick.permutation(keys))
    print(f"{keys:,} keys x {panes} panes, {changed:.1%} of the keys change")
    saved(live, "one file", folder / "file")
    whole = saved(live, "directory, whole", folder / "directory")
    for _ in range(3):
        push(live, (panes - 1) * EVERY, pick.integers(0, keys, few))
        saved(live, "directory, changes", folder / "directory", whole)
    push(live, panes * EVERY + EVERY // 2, pick.integers(0, keys, few))
    saved(live, "directory, a pane was evicted", folder / "directory", whole)
    live.close()
    for form in ("file", "directory"):
        start, cpu = time.perf_counter(), time.process_time()
        tm.restore(query, folder / form).close()
        took = time.perf_counter() - start
        print(f"restore from the {form:22} {'':11} {time.process_time() - cpu:6.2f} s cpu {took:6.2f} s")


def push(live: Live, t: int, keys: np.ndarray) -> None:
    live.push(s=pa.table({"t": np.full(len(keys), t), "k": keys, "x": keys * 0.5}))


def saved(
    live: Live, what: str, path: Path, whole: tuple[int, float, float] | None = None
) -> tuple[int, float, float]:
    """Save a checkpoint, print its bytes and times, and the share of those of a `whole` one."""
    start, cpu = time.perf_counter(), time.process_time()
    written = live.checkpoint(path, keep=3 if path.name == "directory" else None)
    found = written, time.process_time() - cpu, time.perf_counter() - start
    shares = [f"{now / before:.1%}" for now, before in zip(found, whole)] if whole else []
    print(f"{what:39} {written / 1e6:8.2f} MB {found[1]:6.2f} s cpu {found[2]:6.2f} s  {' '.join(shares)}")
    return found


if __name__ == "__main__":
    main()
