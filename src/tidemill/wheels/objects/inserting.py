"""Insert rows into a store of Python objects: the window engine aggregates them by slot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.time import FARTHEST
from tidemill.kernels.arrow import values
from tidemill.kernels.keys import KeyIndex
from tidemill.local.window_operator import WindowOperator
from tidemill.wheels.objects.cells import take_cells
from tidemill.wheels.objects.store import ObjectStore
from tidemill.wheels.spec import WheelSpec


class ObjectInsert:
    """Inserts rows if partials are Python objects; for numbers, see `memory.inserting`."""

    by_address: Any = None

    def __init__(self, spec: WheelSpec) -> None:
        self._spec, self._time = spec, spec.plan.input.time
        self._operator = WindowOperator(spec.plan)
        """Holds rows only during an insert."""

    def copy(self) -> ObjectInsert:
        """Return a new one: rows that fail in a copy of the wheel must not stay in this operator."""
        return ObjectInsert(self._spec)

    def insert(
        self, batch: pa.RecordBatch, store: ObjectStore, keys: KeyIndex, lock: Any, undo: Any
    ) -> tuple[Any, int, int]:
        """See `CompiledInsert.insert`."""
        ticks = values(batch.column(self._time))
        slot = ticks // self._spec.grain
        late = np.flatnonzero(slot < store.now)
        early = np.flatnonzero((slot >= store.now + len(store.ahead)) | (ticks > FARTHEST))
        others = np.concatenate((early, late[::-1]))
        if len(others):
            inside = np.ones(len(slot), dtype=np.bool_)
            inside[others] = False
            batch = batch.filter(pa.array(inside))
        if batch.num_rows:
            self._accumulate(batch, store, keys, lock, undo)
        return others, len(early), len(late)

    def _accumulate(
        self, batch: pa.RecordBatch, store: ObjectStore, keys: KeyIndex, lock: Any, undo: Any
    ) -> None:
        try:
            with lock:
                self._operator.share_keys(keys)
                self._operator.push(0, batch)
            store.know(keys.count)
            store.add(*take_cells(self._operator), undo)
        except BaseException as failed:
            self._operator = WindowOperator(self._spec.plan)  # rows that failed may be in it
            if isinstance(failed, UserError) or not isinstance(failed, Exception):
                raise
            # Raised by a user's function, or by the value it returned.
            raise UserError("insert", f"raised {type(failed).__name__}: {failed}") from failed
