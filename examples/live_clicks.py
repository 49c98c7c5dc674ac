"""Ad clicks from history to live: one query, one directory, a restart in between.

    python -m examples.live_clicks

Clicks come as Parquet files. `run` answers over those that are there. The live query reads the same files,
then waits for new ones. It is stopped, files appear while nobody reads, and it goes on from its checkpoint.
The rows that it gave, before and after, are those of `run` over all files.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pyarrow as pa

import tidemill as tm
from tidemill import col
from tidemill.io.sinks import write_parquet
from tidemill.local.live import Live

FILES, CLICKS = 24, 100
"""Files, one for each ten minutes, and clicks in each."""

clicks = tm.stream("clicks", time="t", schema={"t": "int64", "ad": "int64", "price": "float64"})
per_ad = (
    clicks
    .group_by("ad")
    .window(tm.tumbling(900))
    .agg(n=tm.count(), spend=tm.sum(col.price))
)  # fmt: skip
policy = tm.Disorder(slack=60)


def write_file(folder: Path, number: int) -> None:
    """Write the clicks of ten minutes. The file appears when it is complete."""
    pick = random.Random(number)
    in_order = range(600 * number, 600 * (number + 1), 600 // CLICKS)
    times = sorted(in_order, key=lambda t: t + pick.randint(0, 50))
    ads = [pick.randint(1, 5) for _ in times]
    table = pa.table({"t": times, "ad": ads, "price": [0.25 * pick.randint(1, 8) for _ in times]})
    write_parquet(folder / f"{number:04d}.parquet", table.schema, table.to_batches())


def caught_up(live: Live, folder: Path, saved: Path) -> list[pa.Table]:
    """Read what is there, and write a checkpoint."""
    files = tm.follow(folder, until=lambda: True)
    return list(live.read(clicks=files, checkpoint=saved))


def watched(folder: Path) -> tuple[pa.Table, pa.Table]:
    """Return the rows that the live query gave, and those of `run` over all files."""
    data, saved = folder / "clicks", folder / "saved"
    data.mkdir()
    for number in range(FILES // 2):
        write_file(data, number)
    history = per_ad.run(clicks=data)
    live = per_ad.live(policy)
    given = caught_up(live, data, saved)
    known = sum(table.num_rows for table in given)
    print(f"history has {history.num_rows} windows; {known} are complete, the others wait for more clicks")

    live.close()  # or the process is killed
    write_file(data, FILES // 2)  # while nobody reads

    live = tm.restore(per_ad, saved, policy)
    print(f"restored: {len(live.positions['clicks']['done'])} files were read")
    written = FILES // 2 + 1

    def until() -> bool:
        """Write the next file whenever all are read; a program that goes on has no `until`."""
        nonlocal written
        if written < FILES:
            write_file(data, written)
            written += 1
            return False
        return True

    given += live.read(clicks=tm.follow(data, poll="1ms", until=until), checkpoint=saved)
    print(live)
    given.append(live.flush())
    return pa.concat_tables(given), per_ad.run(clicks=data)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        live, history = watched(Path(folder))
    order = [("ad", "ascending"), ("window_start", "ascending")]
    print(live.sort_by(order).slice(0, 5).to_pandas())
    said = "the same" if live.sort_by(order).equals(history.sort_by(order)) else "DIFFERENT"
    print(f"{live.num_rows} rows live, {history.num_rows} from history, {said}")


if __name__ == "__main__":
    main()
