"""Compare the rows that a live query gave with the answer over all events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.core.errors import UserError
from tidemill.io.sources import open_source
from tidemill.kernels.keys import KeyIndex
from tidemill.local.run import run
from tidemill.local.same_rows import as_array, same_rows
from tidemill.plan.disorder import REASON, WITHOUT_TIME
from tidemill.plan.emit import FINAL, REVISION, WITHDRAWN
from tidemill.plan.identity import require_identity
from tidemill.plan.nodes import Plan, Source, sources
from tidemill.plan.usable_rows import usable_only

CHANGE, GIVEN = "change", "given_"
_STEP = "reconcile"


def reconcile(
    plan: Plan, given: pa.Table, late: Mapping[str, pa.Table] | pa.Table | None, inputs: Mapping[str, Any]
) -> pa.Table:
    """Return the rows of the answer that differ from those that were given; see `tm.reconcile`."""
    identity = require_identity(_STEP, plan)
    before = _last_revisions(given, plan, identity)
    plan = usable_only(plan.transform(_unordered))
    names = [source.name for source in sources(plan)]
    if late is not None and not isinstance(late, Mapping):
        if len(names) > 1:
            raise UserError(_STEP, expected=f"late= a dict by input, of {names}", got="one table")
        late = {names[0]: late}
    if unknown := [name for name in late or () if name not in names]:
        raise UserError(_STEP, expected=f"late= by input, of {names}", got=f"{unknown}")
    chained = dict(inputs)
    for source in sources(plan):
        if late is not None and source.name in late and source.name in inputs:
            chained[source.name] = _chained(inputs[source.name], late[source.name], source)
    schema = plan.schema.to_arrow()
    return _changes(before, pa.Table.from_batches(list(run(plan, chained)), schema=schema), plan, identity)


def _unordered(node: Plan) -> Plan:
    return replace(node, ordered=False) if isinstance(node, Source) else node


def _chained(value: Any, late: pa.Table, source: Source) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an input, then the late ones. Rows without a time stay out: no window has them."""
    for chunk in open_source(value, source, promises=False):
        yield chunk.batch
    if REASON in late.column_names:
        left_out = pc.is_in(late.column(REASON), pa.array(WITHOUT_TIME))
        late = late.filter(pc.invert(left_out)).drop_columns([REASON])
    yield from late.to_batches()


def _last_revisions(given: pa.Table, plan: Plan, identity: tuple[str, ...]) -> pa.Table:
    """Return the rows that were given; of several revisions the last one, if it was not withdrawn."""
    if not isinstance(given, pa.Table) or not set(plan.schema.names) <= set(given.column_names):
        raise UserError(
            _STEP, expected=f"a table of the rows that were given, with the columns {plan.schema.names}",
            got=f"{given.column_names if isinstance(given, pa.Table) else type(given).__name__}",
        )  # fmt: skip
    rows = given.select(list(plan.schema.names)).cast(plan.schema.to_arrow()).combine_chunks()
    if not {REVISION, FINAL, WITHDRAWN} <= set(given.column_names) or not len(rows):
        return rows
    ids = KeyIndex(plan.schema.select(identity)).encode([rows.column(n).combine_chunks() for n in identity])
    last = np.full(int(ids.max()) + 1, -1, dtype=np.int64)
    last[ids] = np.arange(len(ids))  # of several, the last one stays
    last = np.sort(last[last >= 0])
    kept = ~np.asarray(given.column(WITHDRAWN).combine_chunks().take(pa.array(last)))
    return rows.take(last[kept])


def _changes(before: pa.Table, now: pa.Table, plan: Plan, identity: tuple[str, ...]) -> pa.Table:
    keys = KeyIndex(plan.schema.select(identity))
    ids = [
        keys.encode([as_array(t.column(n)) for n in identity]) if len(t) else np.empty(0, np.int64)
        for t in (before, now)
    ]
    place = np.full((2, keys.count), -1, dtype=np.int64)
    for side, own in enumerate(ids):
        place[side, own] = np.arange(len(own))
    both = np.flatnonzero((place >= 0).all(axis=0))
    same = same_rows(before.take(place[0, both]), now.take(place[1, both]), plan.schema)
    kinds = {
        "added": np.flatnonzero((place[0] < 0) & (place[1] >= 0)),
        "changed": both[~same],
        "withdrawn": np.flatnonzero((place[0] >= 0) & (place[1] < 0)),
    }
    found = np.concatenate(list(kinds.values()))
    was, is_now = (_indices(place[side, found]) for side in (0, 1))
    columns: dict[str, Any] = dict(zip(identity, keys.decode(found)))
    columns[CHANGE] = pa.array([kind for kind, some in kinds.items() for _ in some], pa.string())
    values = [name for name in plan.schema.names if name not in identity]
    columns |= {name: as_array(now.column(name)).take(is_now) for name in values}
    columns |= {GIVEN + name: as_array(before.column(name)).take(was) for name in values}
    return pa.table(columns)


def _indices(places: np.ndarray[Any, Any]) -> pa.Array:
    """Places of rows, null where there is none."""
    return pa.array(places, pa.int64(), mask=places < 0)
