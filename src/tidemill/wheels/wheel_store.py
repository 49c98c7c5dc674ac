"""`WheelStore`: read a wheel that Spark built in buckets of keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tidemill.aggregates.algebra import Aggregate
from tidemill.wheels.files.buckets import BUCKETS, check_buckets, empty_bucket, open_bucket
from tidemill.wheels.files.checks import require
from tidemill.wheels.files.format import Save
from tidemill.wheels.files.opening import spec_of
from tidemill.wheels.lineage import Lineage
from tidemill.wheels.memory.bucketed_store import Buckets
from tidemill.wheels.merge_wheels import merged
from tidemill.wheels.queries import WheelQueries
from tidemill.wheels.spec import WheelSpec, kind_of
from tidemill.wheels.state import WheelState
from tidemill.wheels.view import WheelView
from tidemill.wheels.wheel import Wheel


class WheelStore(WheelQueries):
    """A read-only wheel in buckets of keys, built by `tm.spark.build_wheel`.

    It is a snapshot from when it was opened; later appends do not change it.
    """

    def __init__(self, opened: Save, aggregates: Mapping[str, Aggregate], *, verify: bool) -> None:
        facts, path = opened.facts, opened.path
        with opened.understood():
            spec = spec_of(facts, aggregates)
            check_buckets(facts, spec.rings)
        self.path, self.description, self.given = path.resolve(), facts, dict(aggregates)
        self.verify = verify
        """Whether buckets are compared with their checksums, here and in Spark tasks that open them again."""
        self._buckets = [
            open_bucket(path, facts, aggregates, bucket, verify=verify)
            for bucket in facts[BUCKETS]["saves"]
        ] or [empty_bucket(facts, aggregates, facts[BUCKETS]["until"], 0)]  # fmt: skip
        kind = kind_of(spec.plan)
        for bucket in self._buckets:
            alike = kind_of(bucket.plan) == kind and bucket.store.rings == spec.rings
            alike = alike and bucket.store.now == facts[BUCKETS]["until"]
            require(alike, f"buckets alike in {path}", f"{bucket.plan}")
        super().__init__(_view_of(spec, self._buckets))

    def wheel(self) -> Wheel:
        """Return the whole store as one wheel in memory that takes rows."""
        return Wheel.of_state(self.snapshot())

    def snapshot(self) -> WheelState:
        """All buckets as one state. Internal to this package."""
        wheels = self._buckets
        while len(wheels) > 1:  # in pairs: a cell is copied log2(buckets) times, not once for each bucket
            pairs = zip(wheels[::2], wheels[1::2])
            wheels = [merged(a, b) or a for a, b in pairs] + (wheels[-1:] if len(wheels) % 2 else [])
        whole = wheels[0] if len(self._buckets) > 1 else wheels[0].copy()
        facts = self.description
        whole.inserted, whole.left_out = facts["rows"], dict(facts["left out"])
        # The id is that of the store, the same each time it is opened; the ids of buckets are internal.
        whole.lineage = Lineage(facts["name"], facts["line"])
        whole.lineage.opened = whole.version
        return whole

    def stats(self) -> dict[str, Any]:
        """Slots and bytes by ring, and how many rows were inserted or left out."""
        return {
            **super().stats(), "keys": len(self._view.store.present), "buckets": len(self._buckets),
            "rows": self.description["rows"], "left out": dict(self.description["left out"]),
        }  # fmt: skip


def _view_of(spec: WheelSpec, buckets: Sequence[WheelState]) -> WheelView:
    """All buckets as one store that numbers keys anew."""
    stores = [b.store for b in buckets]
    owners, numbers = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    view = WheelView(spec, Buckets(stores, owners, numbers))
    if view.keyed:
        found = []
        for bucket in buckets:
            own = bucket.store.present
            found.append((view.keys.encode(bucket.keys.decode(own)), own))
        owners = np.full(view.keys.count, -1, dtype=np.int64)
        numbers = owners.copy()
        for at, (keys, own) in enumerate(found):
            owners[keys], numbers[keys] = at, own
        view.store = Buckets(stores, owners, numbers)
    return view
