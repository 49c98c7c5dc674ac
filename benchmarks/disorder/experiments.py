"""What a window's rows are worth and when they come: with promises of the source, and with slack.

*Latency* is in the time of the stream: from the end of a window to the arrival of the event, or the promise,
that gave its rows. Nothing is timed, so each run gives the same. Before that, every row is compared with
paper 003's definition: with consistent slack a late event is in no window; with generous slack it is in
those that were not given yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

import tidemill as tm
from benchmarks.answers import same_rows
from benchmarks.disorder import streams
from benchmarks.disorder.streams import SECOND, Arrivals
from benchmarks.harness import Answers, Case, Measured
from tidemill import col

CONSISTENT, GENEROUS, PROMISES = "consistent slack", "generous slack", "punctuations"
RIGHT = 1e-9
"""Relative errors below this come from the order of additions."""


@dataclass(frozen=True)
class Ask:
    """A mean or a count by segment, over windows in seconds."""

    aggregate: str
    range: float
    slide: float

    @property
    def windows(self) -> Any:
        return tm.hopping(f"{round(1000 * self.range)}ms", every=f"{round(1000 * self.slide)}ms")

    @property
    def query(self) -> Any:
        readings = tm.stream("readings", time="ts", schema=streams.SCHEMA)
        aggregate = tm.count() if self.aggregate == "count" else tm.mean(col.speed)
        return readings.group_by("segment").window(self.windows).agg(x=aggregate)


@dataclass(frozen=True)
class Given:
    """The rows of a live query, and when they came."""

    rows: pa.Table
    arrivals: Arrivals
    ask: Ask
    slack: int | None = None
    """In ticks; None where the source makes promises."""
    consistent: bool = False


def cases(quick: bool) -> list[Case]:
    slacks = (0.32, 1.6, 3.2) if quick else tuple(0.32 * n for n in range(1, 11))
    many = (0, 60, 120, 240, 360, 480, 490, 491, 492, 500, 520, 540, 560, 600)
    more = (0, 300, 491, 600) if quick else many
    seconds, blocks = (200, 8) if quick else (1_280, 21)

    def late() -> Arrivals:
        return streams.bounded(seconds, 20)

    def in_blocks() -> Arrivals:
        return streams.blocks(490 * blocks, 2)

    return [
        *_cases("bounded", Ask("mean", 64, 6.4), late, slacks),
        *_cases("bounded, one window", Ask("mean", 64, 64), late, slacks),
        *_cases("blocks", Ask("count", 600, 60), in_blocks, more),
    ]


def _cases(group: str, ask: Ask, data: Callable[[], Arrivals], slacks: tuple[float, ...]) -> list[Case]:
    """A case for promises of the source, and one for each slack."""
    params = {"range s": ask.range, "slide s": ask.slide}

    def case(name: str, systems: dict[str, Callable[[Arrivals], Measured]]) -> Case:
        return Case(f"{group}/{name}", params, systems, as_defined, data, repeats=1, fresh=True)

    found = [case(PROMISES, {PROMISES: lambda arrivals: promised(arrivals, ask)})]
    for slack in slacks:
        by_policy = {
            p: lambda a, p=p, slack=slack: with_slack(a, ask, slack, consistent=p == CONSISTENT)
            for p in (CONSISTENT, GENEROUS)
        }
        found.append(case(f"slack {slack:g} s", by_policy))
    return found


# -- live queries


def promised(arrivals: Arrivals, ask: Ask) -> Measured:
    """The source says how far time is complete."""
    promises = iter([*arrivals.promises(round(ask.slide * SECOND)), (len(arrivals.ts) + 1, 0)])
    after, below = next(promises)
    with ask.query.live() as live:
        rows, came = [], []
        for number, (batch, at) in enumerate(zip(arrivals.batches, arrivals.at.tolist()), 1):
            live.push(readings=batch)
            while after == number:
                found = live.punctuate(np.datetime64(below, "us").item())
                rows.append(found)
                came.append(np.full(len(found), at))
                after, below = next(promises)
    return _measured(Given(_timed(rows, came), arrivals, ask), late=0)


def with_slack(arrivals: Arrivals, ask: Ask, slack: float, *, consistent: bool) -> Measured:
    """The watermark follows the greatest time."""
    ticks = round(slack * SECOND)
    policy = tm.Disorder(slack=f"{ticks}us", consistent=consistent)
    with ask.query.live(policy) as live:
        rows, came = [], []
        for batch, at in zip(arrivals.batches, arrivals.at.tolist()):
            found = live.push(readings=batch)
            if found.num_rows:
                rows.append(found)
                came.append(np.full(len(found), at))
        late = live.stats().late
    return _measured(Given(_timed(rows, came), arrivals, ask, ticks, consistent), late)


def _timed(rows: list[pa.Table], came: list[Any]) -> pa.Table:
    return pa.concat_tables(rows).append_column("came", pa.array(np.concatenate(came)))


# -- what they are worth


def _measured(given: Given, late: int) -> Measured:
    rows = _judged(given.rows, given)
    truth = _judged(given.ask.query.run(readings=given.arrivals.rows), given)
    both = truth.join(rows, on=["segment", "window_end"], how="left", suffix="_given")
    right, found = (both[name].to_numpy() for name in ("x", "x_given"))
    # A row that never came is wrong altogether.
    error = np.nan_to_num(np.abs(found - right) / np.abs(right), nan=1.0)
    error[error < RIGHT] = 0.0
    latency = (rows["came"] - rows["window_end"]).to_numpy() / SECOND
    return Measured(given, float(latency.mean()), {
        "greatest latency s": float(latency.max()),
        "mean error %": 100 * float(error.mean()),
        "wrong rows %": 100 * float((error > 0).mean()),
        "late events %": 100 * late / len(given.arrivals.ts),
    })  # fmt: skip


def _judged(rows: pa.Table, given: Given) -> pl.DataFrame:
    """Rows of windows that are whole, and that are given before the end of the stream by all policies."""
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    first = round(given.ask.range * SECOND)
    last = int(given.arrivals.ts.max()) - (3 * given.arrivals.block if given.arrivals.block else 5 * SECOND)
    ends = frame.with_columns(pl.col("window_end").dt.epoch("us"), pl.col("x").cast(pl.Float64))
    return ends.filter(pl.col("window_end").is_between(first, last)).drop("window_start")


# -- the definition


def as_defined(answers: Answers) -> None:
    """Raise `Mismatch` where rows are not those of paper 003's definition, by row and by time of arrival."""
    for name, given in answers.items():
        both = {name: _judged(given.rows, given), "definition": _judged(defined(given), given)}
        same_rows("segment", "window_end")(both)


def defined(given: Given) -> pa.Table:
    """Each window that is whole, from the positions of events alone."""
    arrivals, ask = given.arrivals, given.ask
    ts, rows = arrivals.ts, arrivals.rows
    length, slide = (round(s * SECOND) for s in (ask.range, ask.slide))
    segment, speed = (rows[name].to_numpy() for name in ("segment", "speed"))
    latest = np.maximum.accumulate(ts)
    in_time = np.ones(len(ts), dtype=np.bool_)
    if given.slack is not None and given.consistent:
        in_time[1:] = ts[1:] >= latest[:-1] - given.slack
    promises = dict(reversed([(below, n) for n, below in arrivals.promises(slide)]))
    found = []
    for end in range(slide, int(ts.max()) + 1, slide):
        if given.slack is None:
            done = min((n for below, n in promises.items() if below >= end), default=len(ts)) - 1
        else:  # the event that raises the watermark to the end
            done = int(np.searchsorted(latest, end + given.slack))
        if done >= len(ts):
            continue
        inside = np.flatnonzero((ts >= end - length) & (ts < end) & in_time)
        inside = inside[inside <= done]
        n = np.bincount(segment[inside], minlength=streams.SEGMENTS)
        total = np.bincount(segment[inside], speed[inside], minlength=streams.SEGMENTS)
        for k in np.flatnonzero(n).tolist():
            x = float(n[k]) if ask.aggregate == "count" else total[k] / n[k]
            found.append((k, end, x, int(arrivals.at[done])))
    k, end, x, came = zip(*found)
    times = pa.array(np.array(end), pa.timestamp("us", "UTC"))
    return pa.table({"segment": k, "window_start": times, "window_end": times, "x": x, "came": came})
