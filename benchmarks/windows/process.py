"""In process: Tidemill, DuckDB and Polars on two threads, each on its own copy of the rows."""

from __future__ import annotations

import functools

from benchmarks.answers import same_rows
from benchmarks.data import Shape, events
from benchmarks.harness import Asked, Case
from benchmarks.windows.families import rows, windows
from benchmarks.windows.questions import Question


def cases(quick: bool) -> list[Case]:
    all_rows, many, few = (20_000_000, 10_000_000, 2_000_000)
    if quick:
        all_rows, many, few = (2_000_000, 200_000, 20_000)
    whole = Shape(all_rows, 10_000)

    def hop(
        name: str, *, keys: int = 10_000, hours: float = 4 if quick else 48, rows: int = many,
        aggregate: str = "sum", range: str = "1h", every: str = "10m", key: str = "k",
    ) -> Case:  # fmt: skip
        shape = Shape(rows, keys, hours)
        return windows(f"process/{name}", shape, aggregates=(aggregate,), range=range, every=every, key=key)

    # Where each row is in many windows, fewer keys keep a quick run's answers small.
    overlapping = functools.partial(hop, rows=few, keys=1_000 if quick else 10_000, hours=12)
    return [
        rows("process/filter", whole),
        _filter_count(whole),
        windows("process/windowed count", whole, aggregates=("count",), range="1h", every="1h", key=""),
        hop("hopping sum, 10 keys", keys=10),
        hop("hopping sum, 10 000 keys"),
        *([] if quick else [hop("hopping sum, 10 000 keys, few rows each", hours=168)]),
        hop("hopping sum, 1 000 000 keys", keys=1_000_000, hours=2),
        overlapping("hopping sum, range/slide 1", every="1h"),
        overlapping("hopping sum, range/slide 6", every="10m"),
        overlapping("hopping sum, range/slide 60", every="1m"),
        overlapping("hopping sum, range/slide 300", range="5h", every="1m"),
        hop("hopping sum, string keys", key="name"),
        hop("hopping max", aggregate="max"),
        hop("hopping geometric mean, user-defined", aggregate="geometric mean"),
        hop("hopping median", aggregate="median", rows=few, keys=1_000),
    ]


def _filter_count(shape: Shape) -> Case:
    # One window that holds everything: 55 years from 2024-10-04.
    question = Question(
        'events.where(col.user % 100 < 5).window(tm.tumbling("20000d")).agg(n=tm.count())',
        "SELECT count(*) AS n FROM events WHERE user % 100 < 5",
        'events.filter(pl.col("user") % 100 < 5).select(n=pl.len())',
        ("n",), "in-memory",
    )  # fmt: skip
    systems = question.systems(shape.streams)
    ours = systems["tidemill"]
    systems["tidemill"] = Asked(question.tidemill, lambda e: ours(e).select(["n"]))
    params = {"rows": shape.rows, "kept": "5 %"}
    return Case(
        "process/filter and count", params, systems, same_rows(*question.by), lambda: events(shape)
    )
