"""Insert partial aggregates by key and slot into a wheel: Spark fills wheels this way."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.codegen.kernel_errors import raise_for
from tidemill.core.types import to_arrow
from tidemill.kernels.arrow import values
from tidemill.kernels.order import order_by
from tidemill.local.partial_batches import PANE, key_name
from tidemill.local.state_columns import state_fields
from tidemill.wheels.loops.merge_cells import merge_kernel
from tidemill.wheels.memory.sparse_store import SparseStore
from tidemill.wheels.spec import power_of_two
from tidemill.wheels.state import WheelState

OPEN_CELLS = 1 << 20
"""The approximate number of cells in open slots while partials are inserted."""


class PartialsIn:
    """Partials for a wheel, in any order, as rows of `local.partial_batches`; panes are slots."""

    def __init__(self, wheel: WheelState) -> None:
        self._wheel, self._store = wheel, wheel.store
        self._kid: list[npt.NDArray[np.int64]] = []
        self._slot: list[npt.NDArray[np.int64]] = []
        self._records: list[npt.NDArray[Any]] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Buffer partials until `close`."""
        wheel, store = self._wheel, self._store
        kid = np.zeros(batch.num_rows, dtype=np.int64)
        if wheel.keyed:
            kinds = [to_arrow(wheel.schema[k]) for k in wheel.plan.group_keys]
            keys = [batch.column(key_name(i)).cast(kind) for i, kind in enumerate(kinds)]
            kid = wheel.keys.encode(keys)
        records = np.empty(batch.num_rows, dtype=store.slots.open_type)
        records["rows"] = 1  # only whether it is zero matters
        for part in wheel.plan.layout.parts:
            for name, _ in state_fields(part):
                records[name] = values(batch.column(name))
        self._kid.append(kid)
        self._slot.append(values(batch.column(PANE)))
        self._records.append(records)

    def close(self, until: int) -> None:
        """Add all buffered partials to slots at or above the watermark, and close the slots below `until`."""
        wheel, store = self._wheel, self._store
        if wheel.keyed:
            store.know(wheel.keys.count)
        if self._kid and wheel.is_empty():
            store.begin_at(max(store.now, min(int(s.min()) for s in self._slot if len(s))))
        wheel.require_memory(until)
        usual = len(store.ahead)
        store.have_open(max(usual, power_of_two(max(1, OPEN_CELLS // max(1, store.keys)))))
        if self._kid:
            self._place(until)
        raise_for(store.close(until), "wheel")
        store.have_open(usual)
        self._kid, self._slot, self._records = [], [], []

    def _place(self, until: int) -> None:
        store, kernel = self._store, merge_kernel(self._wheel.plan.layout)
        slot = np.concatenate(self._slot)
        order = order_by(slot)
        slot = slot[order]
        kid, records = np.concatenate(self._kid)[order], np.concatenate(self._records)[order]
        assert len(slot) == 0 or (slot[0] >= store.now and slot[-1] < until)
        at = 0
        while at < len(slot):
            # Empty slots before the next slot with rows are closed in one step.
            begin = max(store.now, int(slot[at]) - len(store.ahead) + 1)
            raise_for(store.close(begin), "wheel")
            end = begin + len(store.ahead)
            upto = int(np.searchsorted(slot, end))
            err = kernel.placed(kid[at:upto], slot[at:upto], records[at:upto], store.ahead)
            raise_for(err, "wheel")
            if isinstance(store, SparseStore):
                store.touch()
            raise_for(store.close(min(end, until)), "wheel")
            at = upto
        self._wheel.inserted += len(slot)
