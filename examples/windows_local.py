"""Windows in this process: clicks on ads in the last hour, once a minute, from a table in memory.

    python -m examples.windows_local

`tm.read("clicks.parquet", time="ts")` in place of the data that is made up is all that your own file needs.
"""

from __future__ import annotations

import pyarrow as pa

import tidemill as tm
from tidemill import col

clicks = tm.datasets.clicks(rows=10_000)
per_ad = (
    clicks
    .where(col.user % 100 < 20)
    .group_by("ad")
    .window(tm.hopping("1h", every="10m"))
    .agg(n=tm.count(), spend=tm.sum(col.price), dearest=tm.max(col.price))
)  # fmt: skip


def busiest(rows: int) -> pa.Table:
    """Return the windows with the most clicks."""
    return per_ad.sort("n", "spend", descending=True).limit(rows).run()


def main() -> None:
    print(per_ad)
    print(busiest(5).to_pandas().to_string())


if __name__ == "__main__":
    main()
