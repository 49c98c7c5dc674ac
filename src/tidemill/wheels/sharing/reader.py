"""A wheel that another process writes, to be asked here: see `wheels.shared`."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidemill.core.time import Domain
from tidemill.plan.nodes import WindowAggregate
from tidemill.wheels.memory.store import RingStore
from tidemill.wheels.queries import ALL, Ints, WheelQueries
from tidemill.wheels.rings import Ring
from tidemill.wheels.sharing.writer import Subscriber


class WheelReader(WheelQueries):
    """A wheel that another process writes."""

    _store: RingStore

    def __init__(
        self, source: Subscriber, plan: WindowAggregate, rings: Sequence[Ring], domain: Domain
    ) -> None:
        self._source, facts = source, source.described
        store = RingStore(
            plan.layout, rings, 0, 1, prefix=facts["prefix"], threshold=facts["one ring below"], room=False
        )
        store.on_retry = self._again
        super().__init__(plan, store, domain)
        schema = plan.input.schema.to_arrow()
        self._key_schema = pa.schema([schema.field(k) for k in plan.group_keys])
        self._refresh()

    def new_locks(self) -> None:
        super().new_locks()
        self._catching_up = threading.RLock()
        """Of what the writer did meanwhile, one thread takes note at a time."""

    @property
    def watermark(self) -> Any:
        """How far the writer is."""
        self._catch_up()
        return super().watermark

    @property
    def writer(self) -> str:
        """Whether the writer goes on: "alive", or "gone", and then nothing changes any more."""
        self._source.stale()  # it refuses if another has taken its place
        return "alive" if self._source.writes() else "gone"

    def query(self, start: Any, end: Any, key: Any = ALL) -> Any:
        """See `WheelQueries.query`."""
        self._catch_up()
        return super().query(start, end, key)

    def stats(self) -> dict[str, Any]:
        """Slots and bytes by ring, and whether the writer goes on."""
        return {**super().stats(), "writer": self.writer}

    def _catch_up(self) -> None:
        with self._catching_up:
            if self._source.stale():
                self._refresh()
            if self._keyed:
                for keys in self._source.new_keys(self._key_schema):  # in order, as the writer numbers them
                    with self._lock:
                        self._keys.restore([keys[k].combine_chunks() for k in self._plan.group_keys])

    def _numbers(self, keys: Any) -> Ints:
        numbers = super()._numbers(keys)
        if keys is ALL and len(numbers) and numbers.max() >= self._keys.count:
            self._catch_up()  # keys are told before their slots close, so those that there are now are known
            numbers = numbers[numbers < self._keys.count]
        return numbers

    def _refresh(self) -> None:
        self._source.attach(self._store)
        self._store.settle()

    def _again(self, since: float) -> None:
        """Slots are closing, for one answer since then: read again, the newest arrays."""
        with self._catching_up:
            if self._source.stale():
                self._refresh()
        self._source.require_progress(since)
        time.sleep(0)
