"""Wheels of aggregates whose partials are not a few numbers: text, sketches, multisets, opaque Python."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.aggregates.algebra import Aggregate
from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.time import FARTHEST, Domain
from tidemill.core.types import DataType, to_arrow
from tidemill.kernels.arrow import values
from tidemill.local.windows import WindowOperator
from tidemill.plan.nodes import WindowAggregate
from tidemill.wheels.objects.cells import take_cells
from tidemill.wheels.objects.store import ObjectStore
from tidemill.wheels.rings import Ring
from tidemill.wheels.spec import not_numbers, power_of_two
from tidemill.wheels.wheel import Wheel


class ObjectWheel(Wheel):
    """A wheel whose rows are aggregated by the window engine, slot by slot, and kept as Python values."""

    _store: ObjectStore

    def __init__(
        self, plan: WindowAggregate, store: ObjectStore, domain: Domain, write_ahead: int,
        given: Mapping[str, Aggregate],
    ) -> None:  # fmt: skip
        super().__init__(plan, store, domain, write_ahead, given)
        self._operator = WindowOperator(plan)
        """It holds rows only while they are inserted."""

    def new_locks(self) -> None:
        super().new_locks()
        self._store.new_locks()

    def _inserts_at(self) -> tuple[Any, list[int]]:
        return None, []

    # -- rows in

    def _insert(self, batch: pa.RecordBatch, undo: Any = None) -> None:
        batch = self._with_times(batch)
        ticks = values(batch.column(self._time))
        slot, store = ticks // self._grain, self._store
        late = np.flatnonzero(slot < store.now)
        early = np.flatnonzero((slot >= store.now + len(store.ahead)) | (ticks > FARTHEST))
        others = np.concatenate((early, late[::-1]))
        inside = np.ones(len(slot), dtype=np.bool_)
        inside[others] = False
        self._accumulate(batch.filter(pa.array(inside)) if len(others) else batch, undo)
        self._inserted += int(inside.sum())
        self._keep_others(batch, others, len(early), len(late))

    def _accumulate(self, batch: pa.RecordBatch, undo: Any) -> None:
        if batch.num_rows == 0:
            return
        try:
            with self._lock:
                self._operator.share_keys(self._keys)
                self._operator.push(0, batch)
            self._store.know(self._keys.count)
            self._store.add(*take_cells(self._operator), undo)
        except BaseException as failed:
            self._operator = WindowOperator(self._operator.plan)  # rows that failed may be in it
            if isinstance(failed, UserError) or not isinstance(failed, Exception):
                raise
            # The user's functions, and what they gave.
            raise UserError("insert", f"raised {type(failed).__name__}: {failed}") from failed

    def _advance(self, before: int, until: int) -> list[pa.Table]:
        try:
            with self._stopping("advance_to"):
                return super()._advance(before, until)
        except Exception as failed:
            if isinstance(failed, UserError):
                raise
            assert self._failed is not None
            raise self._failed from failed

    def _merged_store(self, other: Wheel, names: Any, keys: int) -> ObjectStore:
        assert isinstance(other, ObjectWheel)
        return self._store.merged(other._store, names, keys)

    def _copy(self) -> ObjectWheel:
        other = super()._copy()
        assert isinstance(other, ObjectWheel)
        other._operator = WindowOperator(self._operator.plan)  # rows that fail there must not be here
        return other

    # -- answers

    def _outputs(self, n: int) -> list[npt.NDArray[Any]]:
        kinds = (np.bool_, np.object_)
        return [np.empty(n, dtype=kind) for _ in self._results for kind in kinds]

    def _column(self, data: Any, valid: Any, kind: DataType) -> pa.Array:
        return pa.array(data.tolist(), to_arrow(kind))  # what is not valid is None

    def _plain(self, value: Any, kind: DataType) -> Any:
        return pa.array([value], to_arrow(kind))[0].as_py()

    # -- what there is not

    def window(self, range: Any, every: Any = None, *, name: str | None = None) -> None:
        """Such wheels have no windows of their own."""
        raise self._unsupported("windows", "use the query engine")

    def share(self, path: str | os.PathLike[str]) -> None:
        """Python values cannot be shared."""
        raise self._unsupported("share", "save it, and open it there")

    def _unsupported(self, what: str, instead: str) -> UnsupportedError:
        return UnsupportedError("wheel", f"{what} with {not_numbers(self._plan)}", instead=instead)


def object_wheel(
    plan: WindowAggregate, rings: Sequence[Ring], first: int, domain: Domain, write_ahead: int,
    threshold: int, given: Mapping[str, Aggregate],
) -> ObjectWheel:  # fmt: skip
    """An empty one, which begins with a slot."""
    store = ObjectStore(plan.layout, rings, first, power_of_two(write_ahead), threshold=threshold)
    return ObjectWheel(plan, store, domain, write_ahead, given)
