"""Compute the result columns of windows, given as ranges of elements."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.aggregates.algebra import NamedLower
from tidemill.aggregates.layout import Layout, Result, StatePart
from tidemill.aggregates.values import functions
from tidemill.aggregates.values import lower as lower_row
from tidemill.codegen.fold import FoldKernel, fold_kernel
from tidemill.codegen.kernel_errors import raise_for
from tidemill.codegen.plane_windows import PlaneWindowsKernel, plane_windows_kernel
from tidemill.codegen.state_plan import StatePlan
from tidemill.core.errors import UserError
from tidemill.core.types import DataType, to_arrow
from tidemill.kernels.arrow import allocate, build
from tidemill.kernels.holistic import lower as lower_multiset
from tidemill.kernels.memory import empty
from tidemill.kernels.texts import Texts
from tidemill.kernels.window_ranges import Ranges
from tidemill.local.object_slides import slid, slid_rows
from tidemill.local.object_states import fold_object
from tidemill.local.pane_store import Elements


class Results:
    """Computes every aggregate of a query over ranges of elements."""

    def __init__(self, layout: Layout, parts: StatePlan, sliding: tuple[str, ...]) -> None:
        self._layout, self._parts, self._sliding = layout, parts, sliding
        self._compiled = tuple(
            j for j, r in enumerate(layout.results)
            if not isinstance(r.lower, NamedLower) and set(r.parts) <= set(parts.fixed)
        )  # fmt: skip
        self._kernel: FoldKernel = fold_kernel(
            layout, parts.fixed, tuple(sliding[p] for p in parts.fixed), self._compiled
        )

    @functools.cached_property
    def from_planes(self) -> PlaneWindowsKernel | None:
        """The kernel that aggregates grid windows without elements, where there is one."""
        few = all(self._sliding[p] in ("single", "merge") for p in self._parts.fixed)
        if not few or len(self._compiled) < len(self._layout.results):
            return None
        return plane_windows_kernel(self._layout, self._parts.fixed, self._compiled)

    def outputs(self, n: int) -> list[tuple[Any, Any]]:
        """Return room for the values and the validity of each compiled result."""
        return [(allocate(self._layout.results[j].type, n), empty(n, np.uint8)) for j in self._compiled]

    def arrays(self, outputs: list[tuple[Any, Any]], n: int, texts: Texts) -> dict[int, pa.Array]:
        """Return the first `n` rows of outputs as arrays, by the number of the result."""
        found = {}
        for j, (data, valid) in zip(self._compiled, outputs):
            kind = self._layout.results[j].type
            if kind.kind == "string":
                found[j] = texts.decode(np.where(valid[:n] != 0, data[:n], -1))
            else:
                found[j] = build(data[:n], valid[:n], to_arrow(kind))
        return found

    def columns(self, elements: Elements, ranges: Ranges, texts: Texts) -> list[pa.Array]:
        """Return an array for each result, with a row for each range."""
        found = self._fold(elements, ranges, texts)
        for j, result in enumerate(self._layout.results):
            if j in found:
                continue
            index = result.parts[0]
            if index in self._parts.multisets:
                found[j] = self._multiset(result, elements, ranges, texts)
            else:
                found[j] = self._objects(result, elements, ranges)
        return [found[j] for j in range(len(found))]

    def _fold(self, elements: Elements, ranges: Ranges, texts: Texts) -> dict[int, pa.Array]:
        n = len(ranges)
        pairs = self.outputs(n)
        base, end = (int(ranges.low.min()), int(ranges.high.max())) if n else (0, 0)
        records = elements.records[base:end]
        suffixes = empty(len(records) if self._kernel.needs_suffixes else 0, records.dtype)
        err = self._kernel.run(
            n, ranges.low, ranges.high, base, records, suffixes, texts.table,
            *(a for pair in pairs for a in pair),
        )  # fmt: skip
        raise_for(err, "window aggregate")
        return self.arrays(pairs, n, texts)

    def _multiset(
        self, result: Result, elements: Elements, ranges: Ranges, texts: Texts
    ) -> pa.Array:
        assert isinstance(result.lower, NamedLower)
        offsets, args = elements.rows[result.parts[0]]
        low, high = offsets[ranges.low], offsets[ranges.high]
        lowered = lower_multiset(result.lower.name, result.lower.params, low, high, args)
        raise_for(lowered.err, result.shown)
        if lowered.offsets is None:
            valid = lowered.valid if result.empty is None else None
            return build(lowered.data[0], valid, to_arrow(result.type))
        item = result.type.of[0]
        inner = item.of if item.kind == "struct" else (item,)
        there = lowered.there or itertools.repeat(None)
        columns = [_items(d, t, texts, valid) for d, t, valid in zip(lowered.data, inner, there)]
        items = columns[0]
        if item.kind == "struct":
            fields = [pa.field(n, to_arrow(t)) for n, t in zip(item.names, item.of)]
            items = pa.StructArray.from_arrays(columns, fields=fields)
        return pa.ListArray.from_arrays(pa.array(lowered.offsets, pa.int32()), items).cast(
            to_arrow(result.type)
        )

    def _objects(self, result: Result, elements: Elements, ranges: Ranges) -> pa.Array:
        [index] = result.parts
        part, how = self._layout.parts[index], self._sliding[index]
        low, high = ranges.low.tolist(), ranges.high.tolist()
        if how == "subtract_rows":
            states = slid_rows(part, *elements.row_objects[index], low, high)
        else:
            states = slid(part, _objects_of(part, index, elements), low, high, how)
        out = []
        everything: list[Any] = [(1,)] * len(self._layout.parts)  # where there is a state, there were rows
        for state in states:
            if state is None and (result.present is not None or isinstance(result.lower, NamedLower)):
                out.append(result.empty)
                continue
            everything[index] = functions(part).identity() if state is None else state
            out.append(lower_row(result, self._layout, everything))
        try:
            return pa.array(out, type=to_arrow(result.type))
        except (pa.ArrowException, TypeError) as unfit:
            raise UserError(
                result.shown, expected=f"results of type {result.type!r}", got=str(unfit)
            ) from unfit


def _objects_of(part: StatePart, index: int, elements: Elements) -> list[Any]:
    """The partial of each element; None if it has no rows."""
    if index in elements.objects:
        return elements.objects[index]
    offsets, rows = elements.row_objects[index]
    ends = offsets.tolist()
    return [fold_object(part, rows[a:b]) if a < b else None for a, b in itertools.pairwise(ends)]


def _items(data: Any, kind: DataType, texts: Texts, valid: Any) -> pa.Array:
    if kind.kind != "string":
        return build(data, valid, to_arrow(kind))
    by_rank = np.argsort(texts.pool.rank)  # strings in `Elements.rows` are ranks
    codes = by_rank[data]
    return texts.decode(codes if valid is None else np.where(valid, codes, -1))
