"""Insert rows into the open slots of a store of numbers, with compiled kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.codegen.columns import Columns
from tidemill.codegen.kernel_errors import raise_for
from tidemill.kernels.arrow import values
from tidemill.kernels.keys import KeyIndex
from tidemill.local.intake import Intake, LoopNodes
from tidemill.wheels.loops.insert import InsertKernel, has_eight_bytes, insert_kernel
from tidemill.wheels.memory.store import RingStore
from tidemill.wheels.spec import WheelSpec


class CompiledInsert:
    """Inserts rows if partials are numbers. It holds no rows, so copies of a wheel share it."""

    def __init__(self, spec: WheelSpec) -> None:
        plan = spec.plan
        schema, layout, keyed = plan.input.schema, plan.layout, bool(plan.group_keys)

        def compiled(columns: Columns, nodes: LoopNodes) -> InsertKernel:
            return insert_kernel(columns, layout, nodes.args, keyed)

        self._keyed, self._time, self._grain = keyed, plan.input.time, spec.grain
        self._intake = Intake(schema, layout, compiled, keys=plan.group_keys)
        plain, kinds = self._intake.expressions.plain, self._intake.expressions.schema
        self.by_address: Any = None
        """A kernel that reads Arrow buffers directly, and the columns' positions; None if it cannot."""
        if plain is not None and all(has_eight_bytes(kind) for _, kind in kinds):
            read = [schema.names.index(n) for n in (self._time, *plain)]
            self.by_address = self._intake.kernel(Columns(kinds)).run_at, read

    def copy(self) -> CompiledInsert:
        return self

    def key_ids(self, batch: pa.RecordBatch, keys: KeyIndex) -> Any:
        """The key numbers of rows; new keys are added."""
        return self._intake.key_ids(batch, keys)

    def insert(
        self, batch: pa.RecordBatch, store: RingStore, keys: KeyIndex, lock: Any, undo: Any
    ) -> tuple[Any, int, int]:
        """Insert the rows whose slots are open, and log them so that `undo` can roll them back.

        Returns the positions of the other rows, early rows from the front and late rows from the back, and
        the numbers of early and late rows.
        """
        n = batch.num_rows
        columns, args, failure = self._intake.prepare(batch)
        with lock:
            kid = self._intake.key_ids(batch, keys)
        if self._keyed:
            store.know(keys.count)
        others = np.empty(n, dtype=np.uint32)
        places, records = (store.places, store.records) if undo is None else undo.log_for(n)
        early, late, err = self._intake.kernel(columns).run(
            n, values(batch.column(self._time)), *args, kid, store.now * self._grain, self._grain,
            1.0 / self._grain, store.ahead, *((store.touched,) if self._keyed else ()), store.now, others,
            undo is not None and len(records) > 0, places, records,
        )  # fmt: skip
        raise_for(err, "insert", failure)
        return others, early, late

    def prepared(self, batch: pa.RecordBatch, keys: KeyIndex, lock: Any) -> tuple[Any, Any]:
        """The key numbers of rows, and a function that adds each row to a record other than those of slots.

        The function takes the positions of the records and the records, as many as a power of two.
        """
        columns, args, failure = self._intake.prepare(batch)
        with lock:
            kid = self._intake.key_ids(batch, keys)

        def insert(position: Any, records: Any) -> None:
            n = batch.num_rows
            none, log = np.zeros(n if self._keyed else 0, dtype=np.int64), np.zeros(1, dtype=np.int64)
            touched = (np.zeros((len(records), 1), dtype=np.int64),) if self._keyed else ()
            _, _, err = self._intake.kernel(columns).run(
                n, position, *args, none, 0, 1, 1.0, records, *touched, 0, np.empty(0, dtype=np.uint32),
                False, log, records[:0, 0],
            )  # fmt: skip
            raise_for(err, "advance_to", failure)

        return kid, insert
