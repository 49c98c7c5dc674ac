"""Rows with lifetimes, as arrays that kernels read, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.schema import Schema
from tidemill.core.time import FARTHEST, FOREVER
from tidemill.core.types import to_arrow
from tidemill.kernels.arrow import build, validity, values
from tidemill.kernels.keys import KeyIndex, ids_of
from tidemill.kernels.lifetime_checks import first_far, first_wrong
from tidemill.kernels.memory import empty
from tidemill.kernels.order import order_by
from tidemill.plan.faults import no_lifetime, null_start
from tidemill.plan.nodes import Plan

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def starts_of(plan: Plan, batch: pa.RecordBatch) -> Ints:
    """Return where the lifetimes of rows of a plan start."""
    return values(batch.column(plan.time))


def ends_of(plan: Plan, batch: pa.RecordBatch) -> Ints:
    """Return where the lifetimes of rows of a plan end: a point after one tick, an open one at `FOREVER`."""
    if plan.end is None:
        start = starts_of(plan, batch)
        ends: Ints = np.add(start, 1, out=empty(len(start)))
        return ends
    column = batch.column(plan.end)
    valid = validity(column)
    return values(column) if valid is None else np.where(valid != 0, values(column), FOREVER)


def check_lifetimes(plan: Plan, batch: pa.RecordBatch) -> None:
    """Raise an error if a row has no start, holds at no instant, or is too far from zero."""
    if batch.num_rows == 0:
        return
    if batch.column(plan.time).null_count:
        raise null_start(plan)
    start = starts_of(plan, batch)
    if plan.end is None:
        at = first_far(start, FARTHEST)
        if at >= 0:
            raise no_lifetime(plan, int(start[at]), int(start[at]) + 1)
        return
    end = ends_of(plan, batch)
    at = first_wrong(start, end, FARTHEST, FOREVER)
    if at >= 0:
        raise no_lifetime(plan, int(start[at]), int(end[at]))


def instants(ticks: Ints, kind: pa.DataType) -> pa.Array:
    """Return instants as a column; `FOREVER` is null."""
    open_ = ticks == FOREVER
    if not open_.any():
        return build(ticks, None, kind)
    return build(np.where(open_, 0, ticks), (~open_).astype(np.uint8), kind)


def with_lifetimes(plan: Plan, batch: pa.RecordBatch, start: Ints, end: Ints) -> pa.RecordBatch:
    """Return rows of a plan with other lifetimes."""
    kind = to_arrow(plan.schema[plan.time])
    places = {plan.time: start, **({plan.end: end} if plan.end else {})}
    for name, ticks in places.items():
        at = batch.schema.get_field_index(name)
        batch = batch.set_column(at, pa.field(name, kind), instants(ticks, kind))
    return batch


@dataclass(frozen=True)
class Keyed:
    """Rows in order of their key and of their start."""

    order: Ints
    """Where each row was before."""
    keys: Ints
    starts: Ints
    ends: Ints

    @staticmethod
    def of(keys: Ints, starts: Ints, ends: Ints) -> Keyed:
        order = order_by(keys, starts)
        return Keyed(order, keys[order], starts[order], ends[order])


def key_ids(
    schema: Schema, names: Sequence[str], batch: pa.RecordBatch
) -> tuple[KeyIndex | None, Ints]:
    """Return ids of the keys of rows, and the index that gave them; 0 for all without keys."""
    if not names:
        return None, np.zeros(batch.num_rows, dtype=np.int64)
    index = KeyIndex(schema.select(tuple(names)))
    return index, index.encode([batch.column(n) for n in names])


def row_ids(schema: Schema, names: Sequence[str], batch: pa.RecordBatch) -> tuple[Ints, int]:
    """Return ids that say which rows have equal keys, and a number above all ids; 0 for all without keys."""
    if not names:
        return np.zeros(batch.num_rows, dtype=np.int64), 1
    [ids], count = ids_of(schema.select(tuple(names)), [[batch.column(n) for n in names]])
    return ids, count


def without_nulls(ids: Ints, batch: pa.RecordBatch, names: Sequence[str], instead: int) -> Ints:
    """Return key ids, with a number that no key has for rows of which a key is null."""
    null = np.zeros(len(ids), dtype=np.bool_)
    for name in names:
        valid = validity(batch.column(name))
        if valid is not None:
            null |= valid == 0
    return np.where(null, instead, ids) if null.any() else ids
