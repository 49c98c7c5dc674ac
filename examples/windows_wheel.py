"""Windows from a wheel: it keeps what clicks cost by second and ad, and the clicks themselves are gone.

    python -m examples.windows_wheel

A wheel answers any range of the past in microseconds, and windows without the rows.
"""

from __future__ import annotations

import pyarrow as pa

import tidemill as tm
from tidemill import col

START, END = "2026-01-01T00:00", "2026-01-01T06:00"
clicks = tm.stream(
    "clicks", time="ts", schema={"ts": "timestamp", "user": "int64", "ad": "int64", "price": "float64"}
)
spend = clicks.group_by("ad").window(tm.hopping("1h", every="30m")).agg(n=tm.count(), spend=tm.sum(col.price))


def filled(rows: pa.Table) -> tm.Wheel:
    """Return a wheel of these clicks, up to the end of the day's first quarter."""
    wheel = tm.Wheel(
        {"n": tm.count(), "spend": tm.sum(col.price)},
        schema={"ts": "timestamp", "ad": "int64", "price": "float64"}, time="ts", keys="ad",
        start=START, retention="keep",
    )  # fmt: skip
    wheel.insert(rows)  # in any order, in as many batches as they come
    wheel.advance_to(END)
    return wheel


def main() -> None:
    rows = tm.datasets.clicks(rows=10_000).run()
    wheel = filled(rows)
    print(wheel.query("2026-01-01T01:15:23", "2026-01-01T02:20:50", key=7))
    windows = spend.run(clicks=wheel)
    order = [("ad", "ascending"), ("window_start", "ascending")]
    same = windows.sort_by(order)["n"].equals(spend.run(clicks=rows).sort_by(order)["n"])
    print(f"{windows.num_rows} windows, {'as' if same else 'NOT as'} from the rows")


if __name__ == "__main__":
    main()
