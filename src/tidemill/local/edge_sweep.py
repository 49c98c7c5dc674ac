"""The rows of a snapshot aggregate by one pass over its edges, where rows can be taken out exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.aggregates.algebra import Algebra, NamedLower
from tidemill.codegen.columns import Columns
from tidemill.codegen.kernel_errors import raise_for
from tidemill.codegen.state_plan import plan_states
from tidemill.codegen.sweep import SweepKernel, record_type, sweep_kernel
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.core.types import to_arrow
from tidemill.kernels.arrow import allocate, build, validity, values
from tidemill.kernels.memory import empty
from tidemill.local.expressions import Expressions
from tidemill.local.lifetimes import Ints
from tidemill.local.temporal_operator import Side
from tidemill.plan.temporal import SnapshotAggregate


@dataclass(frozen=True)
class Values:
    """The values that keys have had, or have: a row for each, with the id of the key."""

    keys: Ints
    since: Ints
    until: Ints
    """`FOREVER` if the values go on."""
    columns: list[pa.Array]


class EdgeSweep:
    """Computes the aggregates of a plan."""

    def __init__(self, plan: SnapshotAggregate) -> None:
        self._layout = plan.layout
        self._args = tuple(tuple(part.part.args) for part in self._layout.parts)
        nodes = [node for args in self._args for node in args]
        self._expressions = Expressions(nodes, plan.input.schema)
        given = iter(self._expressions.nodes)
        self._divided = tuple(tuple(next(given) for _ in args) for args in self._args)
        self._kernels: dict[Columns, SweepKernel] = {}
        self._record = record_type(self._layout)
        self._types = [to_arrow(r.type) for r in self._layout.results]

    def run(
        self, side: Side, kid: Ints, keys: int, open_: Values, below: int, *, in_turn: bool
    ) -> tuple[Values, Values]:
        """Return the values that are complete at a watermark, and those that go on.

        `kid` are the ids of the keys of rows, `keys` is their number, and `open_` are the values that keys
        have had up to now. `in_turn` says that rows end in the order in which they start.
        """
        columns, args, failure = self._expressions.prepare(side.rows)
        args = [np.int64(0) if isinstance(a, pa.Array) else a for a in args]  # of text, only nulls are seen
        kernel = self._kernels.get(columns)
        if kernel is None:
            kernel = self._kernels[columns] = sweep_kernel(columns, self._layout, self._divided)
        entering, leaving = side.new_in_order, side.leaving(below, in_turn=in_turn)
        records = self._opened(keys, open_)
        room = len(entering) + len(leaving)
        outputs = [(allocate(r.type, room), empty(room, np.uint8)) for r in self._layout.results]
        bounds = [empty(room) for _ in range(3)]
        n, err = kernel.run(
            side.kept, kid, side.starts, side.ends, entering, leaving, *args, records, BEGINNING, *bounds,
            *(a for pair in outputs for a in pair),
        )  # fmt: skip
        raise_for(err, "agg", failure)
        found = [build(data[:n], valid[:n], kind) for (data, valid), kind in zip(outputs, self._types)]
        key, since, until = (b[:n] for b in bounds)
        return Values(key, since, until, found), self._still(records)

    def _opened(self, keys: int, open_: Values) -> npt.NDArray[np.void]:
        """Return a record for each key, with the values that keys have."""
        records = empty(keys, self._record)
        records["open"] = 0
        records["open"][open_.keys] = 1
        records["since"][open_.keys] = open_.since
        for j, column in enumerate(open_.columns):
            valid = validity(column)
            records[f"c{j}"][open_.keys] = values(column)
            records[f"d{j}"][open_.keys] = True if valid is None else valid != 0
        return records

    def _still(self, records: npt.NDArray[np.void]) -> Values:
        found = np.flatnonzero(records["open"])
        held = records[found]
        columns = []
        for j, kind in enumerate(self._types):
            data, valid = np.ascontiguousarray(held[f"c{j}"]), held[f"d{j}"].astype(np.uint8)
            columns.append(build(data, valid, kind))
        since = np.ascontiguousarray(held["since"])
        return Values(found, since, np.full(len(found), FOREVER, dtype=np.int64), columns)


def sweeps(plan: SnapshotAggregate) -> bool:
    """Return whether all parts of a plan are compiled and have an exact inverse, and results are numbers."""
    layout = plan.layout
    parts = plan_states(layout)
    exact = all(
        isinstance(p.part.algebra, Algebra) and p.form is not None and p.form.subtracts for p in layout.parts
    )
    fixed = all(not isinstance(r.lower, NamedLower) and r.type.is_fixed for r in layout.results)
    return exact and fixed and len(parts.fixed) == len(layout.parts) and layout.commutative
