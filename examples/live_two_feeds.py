"""Two feeds of which one goes idle: it holds the other back for a while, and then no longer.

    python -m examples.live_two_feeds

Orders come from a shop and from the web. For some hours the web is quiet. A window is complete when both
feeds are beyond it, so the windows of the shop wait for the web; after `idle`, here a twentieth of a second,
they do not. When the web comes back, its orders are not late: they are within the slack of those of the shop.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pyarrow as pa

import tidemill as tm
from tidemill import col
from tidemill.local.live import Live

HOURS, QUIET = 8, range(2, 6)
"""Hours of orders, and those in which the web is quiet."""

columns = {"t": "int64", "amount": "int64"}
shop, web = (tm.stream(name, time="t", schema=columns) for name in ("shop", "web"))
per_quarter = (
    shop.union(web)
    .window(tm.tumbling(900))
    .agg(orders=tm.count(), amount=tm.sum(col.amount))
)  # fmt: skip


def orders(name: str, hour: int) -> pa.Table:
    """Return the orders of an hour."""
    pick = random.Random(f"{name} {hour}")
    times = sorted(pick.sample(range(3600 * hour, 3600 * (hour + 1)), 40))
    return pa.table({"t": times, "amount": [pick.randint(1, 100) for _ in times]})


class Orders:
    """Both feeds, which say None if there is nothing now."""

    def __init__(self, web_is_idle: Callable[[], bool]) -> None:
        self._web_is_idle = web_is_idle
        self.sent: dict[str, list[pa.Table]] = {"shop": [], "web": []}
        self._hours = {"shop": -1, "web": -1}
        """The last hour that each has sent."""

    def of_shop(self) -> Iterator[pa.Table | None]:
        for hour in range(HOURS):
            before = max((h for h in range(hour) if h not in QUIET), default=-1)
            while self._hours["web"] < before or (hour == QUIET[-1] and not self._web_is_idle()):
                yield None  # time passes
            yield self._sending("shop", hour)

    def of_web(self) -> Iterator[pa.Table | None]:
        for hour in range(HOURS):
            while self._hours["shop"] < hour:
                yield None
            if hour not in QUIET:
                yield self._sending("web", hour)

    def _sending(self, name: str, hour: int) -> pa.Table:
        self._hours[name] = hour
        self.sent[name].append(orders(name, hour))
        return self.sent[name][-1]


def watched(live: Live) -> tuple[pa.Table, pa.Table, int]:
    """Return what came live, the same from history, and how many windows came while the web was idle."""

    def web_is_idle() -> bool:
        return live.stats().inputs["web"].idle

    feeds, given, while_idle = Orders(web_is_idle), [], 0
    for table in live.read(shop=feeds.of_shop(), web=feeds.of_web()):
        given.append(table)
        while_idle += table.num_rows if web_is_idle() else 0
    print(live)
    given.append(live.flush())
    history = {name: pa.concat_tables(tables) for name, tables in feeds.sent.items()}
    return pa.concat_tables(given), per_quarter.run(**history), while_idle


def main() -> None:
    live, history, while_idle = watched(per_quarter.live(tm.Disorder(slack=3600, idle="50ms")))
    print(live.sort_by("window_start").slice(0, 5).to_pandas())
    same = live.sort_by("window_start").equals(history.sort_by("window_start"))
    print(f"{while_idle} windows came while the web was idle")
    said = "the same" if same else "DIFFERENT"
    print(f"{live.num_rows} rows live, {history.num_rows} from history, {said}")


if __name__ == "__main__":
    main()
