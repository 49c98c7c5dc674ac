"""Two feeds of which one goes idle: it holds the other back for a while, and then no longer.

    python -m examples.live_two_feeds

Orders come from a shop and from the web. At night the web is quiet. A window is complete when both feeds are
beyond it, so that the windows of the shop wait for the web; after `idle` they do not. Here history is played
much faster than it was, in about a second, with the same gaps.
"""

from __future__ import annotations

import random

import pyarrow as pa

import tidemill as tm
from tidemill import col

HOURS = 6
SPEED = 20_000
"""Seconds of the stream in a second."""
columns = {"t": "int64", "amount": "int64"}
shop, web = (tm.stream(name, time="t", schema=columns) for name in ("shop", "web"))
per_quarter = (
    shop.union(web)
    .window(tm.tumbling(900))
    .agg(orders=tm.count(), amount=tm.sum(col.amount))
)  # fmt: skip


def orders(seed: int, quiet: tuple[int, int]) -> pa.Table:
    """Return an order about each minute, except in some hours."""
    pick = random.Random(seed)
    times = sorted(pick.sample(range(HOURS * 3600), HOURS * 60))
    kept = [t for t in times if not quiet[0] * 3600 <= t < quiet[1] * 3600]
    return pa.table({"t": kept, "amount": [pick.randint(1, 100) for _ in kept]})


def watched() -> tuple[pa.Table, pa.Table, int]:
    """Return what came live, the same from history, and how many windows came while the web was idle."""
    of_shop, of_web = orders(1, quiet=(0, 0)), orders(2, quiet=(1, 4))
    # The feeds are played by one clock: neither is behind the other by more than the slack.
    live = per_quarter.live(tm.Disorder(slack=3600, idle="150ms"))
    given, while_idle = [], 0
    for table in live.read(shop=tm.replay(of_shop, speed=SPEED), web=tm.replay(of_web, speed=SPEED)):
        given.append(table)
        while_idle += table.num_rows if live.stats().inputs["web"].idle else 0
    print(live)
    given.append(live.flush())
    return pa.concat_tables(given), per_quarter.run(shop=of_shop, web=of_web), while_idle


def main() -> None:
    live, history, while_idle = watched()
    print(live.sort_by("window_start").slice(0, 5).to_pandas())
    same = live.sort_by("window_start").equals(history.sort_by("window_start"))
    said = "the same" if same else "DIFFERENT"
    print(f"{live.num_rows} rows live, {while_idle} of them while the web was idle; {said} as from history")


if __name__ == "__main__":
    main()
