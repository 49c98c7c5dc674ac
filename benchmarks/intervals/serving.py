"""How long one request for features takes: a lookup of a warm key, and a push of few rows at a fixed rate.

    python -m benchmarks.intervals.serving [--seconds S]

Prints the latencies of calls in microseconds, p50 and p99. `lookups` and `pushes` are for other programs.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, Literal

import numpy as np
import pyarrow as pa

import tidemill as tm

Figures = dict[str, float]
USERS, ITEMS = 1000, 200
LENGTH = 1_000_000
"""The length of the interval, in microseconds of the data."""

requests = tm.stream("requests", time="t", schema={"t": "int64", "user": "int64", "item": "int64"})
orders = tm.stream("orders", time="t", schema={"t": "int64", "user": "int64", "paid": "float64"})
prices = tm.stream("prices", time="t", schema={"t": "int64", "item": "int64", "price": "float64"})

_RECENT = requests.interval_join(orders, on="user", preceding=LENGTH).agg(
    n=tm.count(), paid=tm.sum("paid"), mean=tm.mean("paid")
)
_PRICE = requests.last_join(prices, on="item").select("price")
SETS = {
    "one join": tm.features("one", entity=requests, features=[_RECENT]),
    "a join and an as-of join": tm.features("two", entity=requests, features=[_RECENT, _PRICE]),
}


def _orders(rng: np.random.Generator, times: np.ndarray[Any, Any]) -> pa.RecordBatch:
    n = len(times)
    return pa.record_batch({"t": times, "user": rng.integers(0, USERS, n), "paid": rng.random(n)})


def _percentiles(seconds: list[float]) -> Figures:
    micros = np.array(seconds) * 1e6
    return {f"p{at:g}": float(np.percentile(micros, at)) for at in (50, 90, 99, 99.9)} | {"n": len(micros)}


def lookups(name: str, *, rows: int = 200_000, calls: int = 20_000) -> Figures:
    """Measure lookups of one row, whose key was looked up before, over so many probe rows."""
    server, rng = SETS[name].online(answers="on arrival"), np.random.default_rng(0)
    times = np.sort(rng.integers(0, 2 * LENGTH, rows))
    pushed: dict[str, Any] = {"orders": _orders(rng, times)}
    if "prices" in server.inputs:
        pushed["prices"] = pa.record_batch(
            {"t": times, "item": rng.integers(0, ITEMS, rows), "price": rng.random(rows)}
        )
    server.push(**pushed)
    asked = [{"t": 2 * LENGTH - i, "user": i % 100, "item": i % 100} for i in range(1000)]
    for row in asked:
        server.lookup(row)
    took = []
    for i in range(calls):
        row = asked[i % len(asked)]
        start = time.perf_counter()
        server.lookup(row)
        took.append(time.perf_counter() - start)
    return _percentiles(took)


def pushes(
    answers: Literal["exact", "on arrival"], *, rate: int = 200_000, size: int = 100, seconds: float = 5.0
) -> Figures:
    """Measure how long a row waits for its answer while `rate` rows a second come, half of them base rows.

    Rows come in batches of `size`, each at its time. The latency is from when a batch should have come until
    its base rows are answered; in `exact`, until the batch is that makes them certain.
    """
    server, rng = SETS["one join"].online(tm.Disorder(slack=0), answers=answers), np.random.default_rng(0)
    count = int(rate * seconds / size)
    batches = []
    for number in range(count):
        times = np.sort(rng.integers(number * size, (number + 1) * size, size)) * 1_000_000 // rate
        half = size // 2
        asked = {"t": times[half:], "user": rng.integers(0, USERS, half), "item": np.zeros(half, np.int64)}
        batches.append((_orders(rng, times[:half]), pa.record_batch(asked)))
    for bought, asked_now in batches[: count // 10]:
        server.push(orders=bought, requests=asked_now)
    took, due, answered = list[float](), list[float](), 0
    begin = time.perf_counter() + 0.01
    for number, (bought, asked_now) in enumerate(batches[count // 10 :]):
        due.append(begin + number * size / rate)
        while time.perf_counter() < due[-1]:
            pass
        found = server.push(orders=bought, requests=asked_now).num_rows
        now = time.perf_counter()
        while found > 0 and answered < len(due):  # rows of a batch are answered together, but for its last
            took.append(now - due[answered])
            found -= asked_now.num_rows
            answered += 1
    return _percentiles(took) | {"behind": max(0.0, (time.perf_counter() - due[-1]) * 1e6)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    seconds = parser.parse_args().seconds
    shown = {f"lookup, {name}": lookups(name) for name in SETS}
    for answers in ("on arrival", "exact"):
        shown[f"push {answers}, 200,000 rows/s"] = pushes(answers, seconds=seconds)  # type: ignore[arg-type]
    for name, figures in shown.items():
        print(f"{name:34}", "  ".join(f"{what} {value:,.0f}" for what, value in figures.items()), "µs")


if __name__ == "__main__":
    main()
