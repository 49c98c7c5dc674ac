"""Orders that are on their way: a join with a table, shares of a total, gaps and islands.

    python -m examples.temporal_orders

An order holds from the minute in which it is placed until it is delivered. Those that are still on their way
have no end.
"""

from __future__ import annotations

import random

import tidemill as tm
from tidemill import col

orders = tm.stream(
    "orders", time="placed", end="delivered",
    schema={"placed": "int64", "delivered": "int64", "courier": "string", "item": "int64", "pieces": "int64"},
)  # fmt: skip
items = tm.table("items", schema={"item": "int64", "category": "string", "price": "float64"})

worth = orders.join(items, on="item").with_columns(worth=col.pieces * col.price)
by_category = worth.group_by("category").agg(worth=tm.sum("worth"))
shares = (
    by_category.join(worth.agg(total=tm.sum("worth")))
    .select("category", share=(100 * col.worth / col.total).round())
    .stitch()
)  # fmt: skip
busy = orders.distinct("courier")
idle = (
    busy.lead("courier", again=col.valid_from)
    .where(col.again.is_not_null())
    .select("courier", since=col.valid_to, minutes=col.again - col.valid_to)
)  # fmt: skip

ITEMS = [
    {"item": 1, "category": "books", "price": 12.0}, {"item": 2, "category": "books", "price": 30.0},
    {"item": 3, "category": "garden", "price": 45.0}, {"item": 4, "category": "kitchen", "price": 20.0},
]  # fmt: skip


def placed(count: int, seed: int = 1) -> list[dict[str, object]]:
    """Return orders; the last ones are on their way."""
    pick = random.Random(seed)
    found: list[dict[str, object]] = []
    for n in range(count):
        start = 9 * n + pick.randrange(9)
        end = None if n >= count - 3 else start + pick.randrange(10, 40)
        found.append({
            "placed": start, "delivered": end, "courier": pick.choice(["ann", "ben", "cat"]),
            "item": pick.randrange(1, 5), "pieces": pick.randrange(1, 4),
        })  # fmt: skip
    return found


def main() -> None:
    rows = placed(60)
    order = [(name, "ascending") for name in ("valid_from", "category")]
    found = shares.run(orders=rows, items=ITEMS).sort_by(order)
    print(f"shares of what is on its way, in per cent ({found.num_rows} rows, the last ones):")
    print(found.slice(found.num_rows - 5).to_pandas())
    gaps = idle.run(orders=rows).sort_by([("minutes", "descending"), ("courier", "ascending")])
    print(f"\ncouriers without an order ({gaps.num_rows} times, the longest):")
    print(gaps.select(["courier", "since", "minutes"]).slice(0, 3).to_pandas())
    live = shares.live(tm.Disorder(slack=0))
    live.push(items=ITEMS)
    given, rest = sum(live.push(orders=row).num_rows for row in rows), live.flush().num_rows
    print(f"\nlive, {given} rows of shares came with the orders, and {rest} at the end")


if __name__ == "__main__":
    main()
