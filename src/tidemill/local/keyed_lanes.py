"""An operator on lifetimes on several threads: each lane has the rows of some keys (paper 000, section 6.1).

Rows are divided among the lanes as they come. The lanes work at the same time when a watermark is set. A
snapshot is that of one operator with the rows of all lanes, so it does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, wait

import numpy as np
import pyarrow as pa

from tidemill.core.threads import Threads, borrowed, returned
from tidemill.kernels.shards import lane_of
from tidemill.local.limits import Limits
from tidemill.local.operator import Operator, Snapshot
from tidemill.local.snapshot import column, numbers
from tidemill.local.temporal_operator import TemporalOperator


class KeyedLanes(Operator):
    """Divides the rows of every port by its first key."""

    def __init__(
        self, make: Callable[[], TemporalOperator], keys: Sequence[str], lanes: int, few: int,
        pool: Executor | None = None,
    ) -> None:  # fmt: skip
        """Take the key column of each port. Batches of fewer than `few` rows are worked on by the caller."""
        self._lanes = [make() for _ in range(lanes)]
        self._keys, self._few, self._given = tuple(keys), few, pool
        self.ports, self.plan = len(keys), self._lanes[0].plan
        self._own: Threads | None = None

    @property
    def kind(self) -> str:
        return self._lanes[0].kind

    def push(self, port: int, batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        return [out for lane, rows in self._divided(port, batch) for out in lane.push(port, rows)]

    def _divided(self, port: int, rows: pa.RecordBatch) -> Iterator[tuple[TemporalOperator, pa.RecordBatch]]:
        found = lane_of(rows.column(self._keys[port]), len(self._lanes))
        for number, lane in enumerate(self._lanes):
            own = np.flatnonzero(found == number)
            if len(own):
                yield lane, rows if len(own) == rows.num_rows else rows.take(pa.array(own))

    def advance(self, port: int, below: int, *, prompt: bool = False) -> Iterator[pa.RecordBatch]:
        if self._many < 2:
            for lane in self._lanes:
                yield from lane.advance(port, below, prompt=prompt)
            return
        pool = self._threads()
        calls = [pool.submit(_results, lane, port, below, prompt) for lane in self._lanes[1:]]
        try:
            own = _results(self._lanes[0], port, below, prompt)
        finally:
            wait(calls)  # also if it fails: no lane may work after this call
        found = [own, *(call.result() for call in calls)]
        for results in found:
            yield from results

    def advance_keys(
        self, port: int, keys: Mapping[str, pa.Array], below: int, *, prompt: bool = False
    ) -> Iterator[pa.RecordBatch]:
        for lane in self._lanes:  # each looks for its own keys among them
            yield from lane.advance_keys(port, keys, below, prompt=prompt)

    @property
    def _many(self) -> int:
        """How many lanes have so many rows that a thread pays."""
        return sum(lane.waiting >= self._few for lane in self._lanes)

    def _threads(self) -> Executor:
        if self._given is not None:
            return self._given
        if self._own is None:
            self._own = borrowed(len(self._lanes) - 1)
        return self._own

    @property
    def wants_advance(self) -> bool:
        return any(lane.wants_advance for lane in self._lanes)

    @property
    def promise(self) -> Limits:
        return Limits(min(lane.promise.common for lane in self._lanes))

    def so_far(self, more: Sequence[tuple[int, pa.RecordBatch]] = ()) -> Iterator[pa.RecordBatch]:
        own: dict[int, list[tuple[int, pa.RecordBatch]]] = {}
        for port, batch in more:
            for lane, rows in self._divided(port, batch):
                own.setdefault(id(lane), []).append((port, rows))
        for lane in self._lanes:
            yield from lane.so_far(own.get(id(lane), ()))

    def size(self) -> tuple[int, int]:
        rows, nbytes = zip(*(lane.size() for lane in self._lanes))
        return sum(rows), sum(nbytes)

    def late(self) -> pa.Table | None:
        found = [rows for lane in self._lanes if (rows := lane.late()) is not None]
        return max(found, key=len) if len({r.schema for r in found}) > 1 else pa.concat_tables(found)

    def refused(self, port: int) -> tuple[int, pa.Table] | None:
        counts, tables = zip(*(found for lane in self._lanes if (found := lane.refused(port)) is not None))
        return sum(counts), pa.concat_tables(tables)

    def close(self) -> None:
        if self._own is not None:
            returned(self._own, ())
            self._own = None

    # -- state

    def snapshot(self) -> Snapshot:
        states = [lane.snapshot() for lane in self._lanes]
        # Promises about keys go to all lanes. A lane that worked has forgotten those that say no more than
        # the watermark, and another may have them still: those of one lane are all that matter.
        limits = {name: table for name, table in states[0].items() if name.startswith("limits")}
        rows = states[0].keys() - limits.keys()
        merged = {name: pa.concat_tables([s[name] for s in states]) for name in states[0] if name in rows}
        ticks = [column(s["known"], "tick").tolist() for s in states]
        # All lanes have the same watermarks; the second number is what each of them holds back.
        ticks[0][:2] = [min(t[0] for t in ticks), min(t[1] for t in ticks)]
        refused = [sum(counts) for counts in zip(*(column(s["refused"], "rows").tolist() for s in states))]
        merged["refused"] = numbers(rows=refused)
        return merged | limits | {"about": states[0]["about"], "known": numbers(tick=ticks[0])}

    def restore(self, state: Snapshot) -> None:
        parts: list[Snapshot] = [{} for _ in self._lanes]
        for name, table in state.items():
            key = self._lanes[0].key_of_table(name, self._keys)
            for number, part in enumerate(parts):
                if key is None:
                    for_all = name in ("about", "known") or name.startswith("limits")
                    part[name] = table if for_all or number == 0 else table.slice(0, 0)
                    continue
                lanes = [lane_of(batch.column(key), len(parts)) for batch in table.to_batches()]
                mask = np.concatenate([np.empty(0, np.uint8), *lanes]) == number
                part[name] = table.filter(pa.array(mask))
        for lane, part in zip(self._lanes, parts):
            lane.restore(part)


def _results(lane: TemporalOperator, port: int, below: int, prompt: bool) -> list[pa.RecordBatch]:
    return list(lane.advance(port, below, prompt=prompt))
