"""Play history as if it came now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.clock import Clock
from tidemill.core.errors import UserError
from tidemill.core.time import BEGINNING, FARTHEST, Domain, DurationLike, duration
from tidemill.core.types import INT64, TIMESTAMP
from tidemill.io.chunks import Reader, step_of
from tidemill.io.feeds import Arrival, Feed, OpenFeed, count_of
from tidemill.io.other_columns import ReadAgain, is_read_once
from tidemill.io.sources import open_source
from tidemill.kernels.arrow import validity, values
from tidemill.plan.nodes import Source

_SHORTEST = 0.05
"""Seconds of real time between two batches, if nothing else is asked for."""


def replay(
    history: Any, *, speed: float | None = 1.0, time: str | None = None, every: DurationLike | None = None
) -> ReplayFeed:
    """Play stored rows in the order in which they are stored, as if they came now.

    `history` is what `query.run` takes: a table, a frame, a path. A minute of the stream takes a second with
    `speed=60`; with `speed=None` nobody waits. On logical time, `speed` is ticks in a second. `time` is the
    column that says when a row came, by default the time of the stream. Rows whose times lie in the same
    stretch of length `every` come together. The position is the number of rows.

    >>> from tidemill.stream import stream
    >>> from tidemill.aggregates.basic import count
    >>> from tidemill.windows.spec import tumbling
    >>> from tidemill.plan.disorder import Disorder
    >>> tens = stream("s", time="t", schema={"t": "int64"}).window(tumbling(10)).agg(n=count())
    >>> live = tens.live(Disorder(slack=0))
    >>> rows = [{"t": t} for t in range(25)]
    >>> [table["n"].to_pylist() for table in live.read(s=replay(rows, speed=None, every=5))]
    [[10], [10]]
    """
    if speed is not None and not (isinstance(speed, (int, float)) and speed > 0):
        raise UserError("replay", expected="a speed above 0, or None", got=repr(speed))
    if every is not None and duration(every, step="replay").ticks <= 0:
        raise UserError("replay", expected="every= a positive duration", got=repr(every))
    return ReplayFeed(history, speed, time, every)


class ReplayFeed(Feed):
    """History that is played."""

    about = "replay"

    def __init__(
        self, history: Any, speed: float | None, time: str | None, every: DurationLike | None
    ) -> None:
        super().__init__()
        self._history, self._speed, self._time, self._every = history, speed, time, every

    def __repr__(self) -> str:
        return f"replay(speed={self._speed})"

    def open(self, source: Source, position: Any, clock: Clock) -> OpenFeed:
        time = self._time or source.time
        if time not in source.declared or source.declared[time] not in (INT64, TIMESTAMP):
            raise UserError(
                step_of(source), expected="time= a column of the stream with times", got=repr(time),
                hint=f"the stream declares {list(source.declared.names)}",
            )  # fmt: skip
        needed = source.schema.names
        read = replace(source, columns=needed if time in needed else (*needed, time), ordered=False)
        chunks = open_source(self._history, read, promises=False)
        domain = Domain.CLOCK if source.declared[time] == TIMESTAMP else Domain.LOGICAL
        per_second = None if self._speed is None else self._speed * (1e6 if domain is Domain.CLOCK else 1)
        every = self._ticks(domain, per_second)
        parts = _parts(chunks, time, every, count_of(position, source))
        again = None if is_read_once(self._history) else ReadAgain(self._history)
        return _OpenReplay(parts, list(needed), again, per_second, position, clock)

    def _ticks(self, domain: Domain, per_second: float | None) -> int | None:
        """Return the length of stretches whose rows come together, in ticks; None for chunks as stored."""
        if self._every is not None:
            every = duration(self._every, step="replay")
            if every.domain is not domain:
                raise UserError("replay", expected=f"every= in {domain.value}", got=repr(self._every))
            return every.ticks
        return None if per_second is None else max(1, int(per_second * _SHORTEST))


class _OpenReplay(OpenFeed):
    def __init__(
        self, parts: Iterator[tuple[pa.RecordBatch, int, int]], columns: list[str], again: ReadAgain | None,
        per_second: float | None, position: Any, clock: Clock,
    ) -> None:  # fmt: skip
        super().__init__(position, clock)
        self._parts, self._columns, self._again, self._per_second = parts, columns, again, per_second
        self._following = next(parts, None)
        self._begin: tuple[float, int] | None = None
        """When the first rows with a time came, and that time."""

    def due(self) -> float:
        if self._following is None or self._per_second is None or self._arrived is not None:
            return 0.0
        came = self._following[1]
        if came == BEGINNING:
            return 0.0
        now = self._clock.now()
        if self._begin is None:
            self._begin = now, came
        begin, first = self._begin
        return max(0.0, begin + (came - first) / self._per_second - now)

    def _look(self) -> Arrival | None:
        if self._following is None:
            self.ended = True
        if self.ended or self.due() > 0:
            return None
        assert self._following is not None
        batch, _, rows = self._following
        self._following = next(self._parts, None)
        others = None if self._again is None else self._again.others(rows - batch.num_rows, batch.num_rows)
        return Arrival(rows, batch.select(self._columns), others=others)


def _parts(
    chunks: Reader, time: str, every: int | None, skip: int
) -> Iterator[tuple[pa.RecordBatch, int, int]]:
    """Yield rows that come together, with when they come, in ticks, and how many rows there are up to them.

    A row comes at the greatest time so far: time does not go back.
    """
    latest, rows = BEGINNING, 0
    for chunk in chunks:
        batch = chunk.batch
        column = batch.column(time)
        ticks, valid = values(column), validity(column)
        timeless = np.abs(ticks) > FARTHEST if valid is None else (valid == 0) | (np.abs(ticks) > FARTHEST)
        if timeless.any():  # such rows come with those before them
            ticks = np.where(timeless, BEGINNING, ticks)
        came = np.maximum(np.maximum.accumulate(ticks), latest)
        latest = int(came[-1])
        stretch = came // every if every is not None else np.zeros_like(came)
        for start, end in _runs(stretch):
            rows += end - start
            if rows > skip:
                first = max(start, end - (rows - skip))
                yield batch.slice(first, end - first), int(came[end - 1]), rows


def _runs(stretch: Any) -> Iterator[tuple[int, int]]:
    cuts = np.flatnonzero(stretch[1:] != stretch[:-1]) + 1
    return zip((0, *cuts.tolist()), (*cuts.tolist(), len(stretch)))
