"""Who searched for a lamp and bought one within an hour, and how many sessions were open at that moment?

    python -m examples.temporal_searches

One query reads three streams: searches, purchases, and a log in which each session has a row at its start and
one at its end. It runs on history, and live on batches of a quarter of an hour in which events are out of
order. The answer is the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa

import tidemill as tm
from tidemill import col

DAY, USERS, ITEMS = datetime(2026, 3, 2, tzinfo=timezone.utc), 400, ("lamp", "desk", "chair")
Events = dict[str, list[dict[str, Any]]]
SLACK = timedelta(minutes=10)
"""How far events are out of order at most."""

searches, purchases = (
    tm.stream(name, time="at", schema={"at": "timestamp", "user": "int64", "item": "string"})
    for name in ("searches", "purchases")
)
log = tm.stream("log", time="at", schema={"at": "timestamp", "session": "int64", "kind": "string"})

sessions = log.from_edges("session", start=col.kind == "start")
bought = searches.with_columns(searched=col.at).lasting("1h").join(purchases, on=["user", "item"])
query = (
    bought.where(col.item == "lamp")
    .join(sessions.agg(open=tm.count()))
    .select("user", "searched", "open")
)  # fmt: skip


def events(seed: int = 1) -> Events:
    """Return the events of a day, in order of time."""
    pick = random.Random(seed)
    found: Events = {"searches": [], "purchases": [], "log": []}
    for session in range(300):
        user, start = pick.randrange(USERS), DAY + timedelta(seconds=pick.randrange(80_000))
        length = timedelta(minutes=pick.randrange(5, 90))
        found["log"] += [
            {"at": start, "session": session, "kind": "start"},
            {"at": start + length, "session": session, "kind": "end"},
        ]
        for _ in range(pick.randrange(4)):
            at, item = start + pick.random() * length, pick.choice(ITEMS)
            found["searches"].append({"at": at, "user": user, "item": item})
            if pick.random() < 0.3:
                later = at + timedelta(minutes=pick.randrange(1, 120))
                found["purchases"].append({"at": later, "user": user, "item": item})
    for rows in found.values():
        rows.sort(key=lambda row: str(row["at"]))
    return found


def batches(day: Events) -> Iterator[Events]:
    """Yield the events of each quarter of an hour, as they arrive: each after a delay of its own."""
    pick = random.Random(2)
    arrivals = sorted(
        (row["at"] + pick.random() * SLACK, name, n)
        for name, rows in day.items() for n, row in enumerate(rows)
    )  # fmt: skip
    for quarter in range(4 * 28):
        low, high = (DAY + timedelta(minutes=15 * n) for n in (quarter, quarter + 1))
        batch: Events = {}
        for arrival, name, n in arrivals:
            if low <= arrival < high:
                batch.setdefault(name, []).append(day[name][n])
        if batch:
            yield batch


def watched(day: Events) -> pa.Table:
    """Return the rows that a live query gives."""
    live, given = query.live(tm.Disorder(slack=SLACK)), []
    for batch in batches(day):
        given.append(live.push(**batch))
    print(live)
    given.append(live.flush())
    return pa.concat_tables(given)


def main() -> None:
    day = events()
    order = [(name, "ascending") for name in ("valid_from", "user", "searched")]
    history, live = (found.sort_by(order) for found in (query.run(**day), watched(day)))
    print(history.slice(0, 8).drop_columns(["valid_to"]).to_pandas())
    said = "the same" if live.equals(history) else "DIFFERENT"
    print(f"{live.num_rows} rows live, {history.num_rows} from history, {said}")
    counts = sessions.agg(open=tm.count()).run(log=day["log"]).sort_by([("open", "descending")])
    [most] = counts.slice(0, 1).to_pylist()
    since, until = (f"{most[name]:%H:%M}" for name in ("valid_from", "valid_to"))
    print(f"at most {most['open']} sessions were open, from {since} to {until}")


if __name__ == "__main__":
    main()
