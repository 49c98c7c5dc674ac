"""Query a wheel that another process writes: see `sharing.writer`."""

from __future__ import annotations

import threading
import time
from typing import Any

import pyarrow as pa

from tidemill.wheels.memory.sparse_store import SparseStore
from tidemill.wheels.memory.store import RingStore
from tidemill.wheels.queries import WheelQueries
from tidemill.wheels.sharing.writer import Subscriber
from tidemill.wheels.spec import WheelSpec
from tidemill.wheels.view import ALL, Ints, WheelView


class WheelReader(WheelQueries):
    """A read-only wheel that another process writes."""

    _view: SharedView

    def __init__(self, source: Subscriber, spec: WheelSpec) -> None:
        super().__init__(SharedView(source, spec))

    @property
    def writer(self) -> str:
        """The state of the writer: "alive", or "gone", after which nothing changes any more."""
        source = self._view.source
        source.stale()  # raises if another writer has taken over the directory
        return "alive" if source.writes() else "gone"

    def query(self, start: Any, end: Any, key: Any = ALL, **options: Any) -> Any:
        """See `WheelQueries.query`."""
        self._view.catch_up()
        return super().query(start, end, key, **options)

    def stats(self) -> dict[str, Any]:
        """Slots and bytes by ring, and whether the writer is alive."""
        return {**super().stats(), "writer": self.writer}


class SharedView(WheelView):
    """The arrays of the writer, and the keys that it has published."""

    store: RingStore

    def __init__(self, source: Subscriber, spec: WheelSpec) -> None:
        self.source = source
        layout, below, keyed = spec.plan.layout, spec.one_ring_below, bool(spec.plan.group_keys)
        store: RingStore
        if source.described.get("sparse") is True:
            store = SparseStore(layout, spec.rings, 0, 1, keyed=keyed, threshold=below)
        else:
            store = RingStore(layout, spec.rings, 0, 1, prefix=spec.prefix, threshold=below, room=False)
        store.on_retry = self._again
        super().__init__(spec, store)
        schema = self.schema.to_arrow()
        self._key_schema = pa.schema([schema.field(k) for k in self.plan.group_keys])
        self._refresh()

    def new_locks(self) -> None:
        super().new_locks()
        self._catching_up = threading.RLock()
        """Held by the one thread that reads the writer's latest changes."""

    def catch_up(self) -> None:
        with self._catching_up:
            if self.source.stale():
                self._refresh()
            if self.keyed:
                for keys in self.source.new_keys(self._key_schema):  # in order, as the writer numbers them
                    with self.lock:
                        self.keys.restore([keys[k].combine_chunks() for k in self.plan.group_keys])

    def numbers(self, keys: Any) -> Ints:
        numbers = super().numbers(keys)
        if keys is ALL and len(numbers) and numbers.max() >= self.keys.count:
            self.catch_up()  # keys are published before their slots close, so all present keys are known now
            numbers = numbers[numbers < self.keys.count]
        return numbers

    def _refresh(self) -> None:
        self.source.attach(self.store)
        self.store.settle()

    def _again(self, since: float) -> None:
        """Prepare a retry of an answer during which slots closed; the first try was at `since`."""
        with self._catching_up:
            if self.source.stale():
                self._refresh()
        self.source.require_progress(since)
        time.sleep(0)
