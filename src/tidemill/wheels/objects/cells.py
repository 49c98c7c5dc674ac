"""Cells of Python objects: the partials of a key in a slot, if they are not numbers.

A cell has a state for each part of a layout, as in the reference engine: a tuple of scalars, a list of
argument tuples, a sketch. None is the identity of a sketch. Cells are immutable; combining makes new ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from itertools import accumulate, chain
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.aggregates import sketches
from tidemill.aggregates.algebra import Algebra, Form, Multiset, ObjectForm, Sketch
from tidemill.aggregates.layout import Layout, Result, StatePart
from tidemill.aggregates.values import functions, lower
from tidemill.codegen.kernel_errors import raise_for
from tidemill.core.errors import UserError
from tidemill.core.floats import order_key
from tidemill.core.types import to_arrow
from tidemill.expr.functions import checked
from tidemill.kernels.functions import NULL_STATE, OVERFLOW
from tidemill.local.expressions import plain
from tidemill.local.object_states import combine_objects
from tidemill.local.state_columns import objects_in, objects_out, state_columns, state_fields
from tidemill.local.window_operator import WindowOperator

Cell = tuple[Any, ...]


class CellAlgebra:
    """The algebra of a layout, on cells."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._folds = [_fold(part) for part in layout.parts]

    def combined(self, cells: Sequence[Cell]) -> Cell:
        """Combine one or more cells into one."""
        if len(cells) == 1:
            return cells[0]
        return tuple(fold(states) for fold, states in zip(self._folds, zip(*cells)))

    def held(self, cells: Sequence[Cell]) -> Cell:
        """Combine cells for a slot: a sum that overflows is an error, as in wheels of numbers."""
        cell = self.combined(cells)
        for part, state in zip(self._layout.parts, cell):
            carries = part.form.carries if isinstance(part.form, Form) else ()
            if state is not None and any(state[j] for j in carries):
                raise_for(OVERFLOW, str(part.part))
        return cell

    def lowered(self, cells: Sequence[Cell], results: Sequence[Result] = ()) -> list[Any]:
        """The results over cells, or over none: those of the layout, unless others are given."""
        cell = self.combined(cells) if cells else (None,) * len(self._folds)
        states = [_whole(part, state) for part, state in zip(self._layout.parts, cell)]
        return [lower(r, self._layout, states) for r in results or self._layout.results]


class Measure:
    """Measures the bytes of cells, each counted once. Python shares small values, so it is not exact."""

    def __init__(self, layout: Layout) -> None:
        algebras = [p.part.algebra for p in layout.parts]
        self._sketches = [a if isinstance(a, Sketch) else None for a in algebras]
        self._seen: set[int] = set()

    def slots(self, slots: Iterable[Mapping[int, Any]]) -> int:
        """The bytes of slots, which map a key to a cell or a tuple of cells."""
        return sum(sys.getsizeof(slot) + sum(map(self._entry, slot.values())) for slot in slots)

    def _entry(self, entry: Any) -> int:
        if entry and isinstance(entry[0], tuple) and len(entry[0]) == len(self._sketches):
            return sys.getsizeof(entry) + sum(map(self._cell, entry))
        return self._cell(entry)

    def _cell(self, cell: Cell) -> int:
        if id(cell) in self._seen:
            return 0
        self._seen.add(id(cell))
        return sys.getsizeof(cell) + sum(map(self._state, cell, self._sketches))

    def _state(self, state: Any, sketch: Sketch | None) -> int:
        if sketch is not None:
            return 0 if state is None else len(sketches.serialize(sketch, state))
        return self._value(state)

    def _value(self, value: Any) -> int:
        if not isinstance(value, (tuple, list, dict, set, frozenset)):
            return sys.getsizeof(value)
        if id(value) in self._seen:  # rows of a list are in the lists of coarser rings, too
            return 0
        self._seen.add(id(value))
        inside = chain.from_iterable(value.items()) if isinstance(value, dict) else value
        return sys.getsizeof(value) + sum(map(self._value, inside))


def _whole(part: StatePart, state: Any) -> Any:
    """A state ready to be lowered: multisets sorted, None replaced by the identity."""
    algebra = part.part.algebra
    if isinstance(algebra, Multiset):
        return sorted(state or (), key=order_key)
    if state is not None:
        return state
    return sketches.new(algebra) if isinstance(algebra, Sketch) else functions(part).identity()


def _fold(part: StatePart) -> Callable[[tuple[Any, ...]], Any]:
    """The function that combines states of a part."""
    algebra = part.part.algebra
    if isinstance(algebra, Multiset):
        return _distinct if algebra.distinct else lambda states: list(chain.from_iterable(states))
    if isinstance(algebra, Sketch):
        return partial(reduce, partial(combine_objects, part))
    combine = functions(part).combine

    def fold(states: tuple[Any, ...]) -> Any:
        try:
            return _sound(part, reduce(combine, states))
        except UserError:
            raise
        except Exception as failed:  # the user's function
            raise UserError(
                f"aggregate {algebra.name}", f"combine raised {type(failed).__name__}: {failed}",
                got=f"partials {states!r:.200}",
            ) from failed  # fmt: skip

    return fold


def _distinct(states: tuple[Any, ...]) -> list[Any]:
    return list({order_key(row): row for row in chain.from_iterable(states)}.values())


def _sound(part: StatePart, state: Any) -> Any:
    """Check a state by the rules for compiled states, so that all wheels follow the same rules."""
    if isinstance(part.form, ObjectForm):
        return state
    for value, (_, kind) in zip(state, part.columns):
        checked(value)
        if value is None and kind.kind != "string":
            raise_for(NULL_STATE, str(part.part))
    return state


# --- from rows ------------------------------------------------------------------------------------


def take_cells(operator: WindowOperator) -> tuple[list[int], list[int], list[Cell]]:
    """Take the key, pane and cell of everything in an operator, which is empty afterwards."""
    store = operator.store
    elements = store.elements()
    states: list[list[Any]] = []
    for index, part in enumerate(operator.layout.parts):
        if index in operator.parts.objects:  # without conversion: they need not fit a column
            states.append([_known(part, s) for s in elements.objects[index]])
        else:
            states.append(_states_in(part, state_columns(store, index, elements)))
    found = elements.kid.tolist(), elements.pane.tolist(), list(zip(*states))
    store.retain(elements, np.zeros(len(elements), dtype=np.bool_))
    store.trim()
    return found


def _known(part: StatePart, state: Any) -> Any:
    """Replace None, the state of no rows, by the identity; the state of a sketch stays None."""
    absent = state is None and isinstance(part.part.algebra, Algebra)
    return functions(part).identity() if absent else state


# --- as Arrow -------------------------------------------------------------------------------------


def cells_out(layout: Layout, cells: Sequence[Cell]) -> dict[str, pa.Array]:
    """Convert cells to columns of partials: see `local.partial_batches`."""
    found: dict[str, pa.Array] = {}
    for index, part in enumerate(layout.parts):
        states = [cell[index] for cell in cells]
        multiset = isinstance(part.part.algebra, Multiset)
        columns = [_lists(part, states)] if multiset else objects_out(part, states)
        found |= dict(zip((n for n, _ in state_fields(part)), columns))
    return found


def _lists(part: StatePart, states: list[Any]) -> pa.Array:
    rows = list(chain.from_iterable(states))
    columns = [pa.array(map(itemgetter(j), rows), to_arrow(t)) for j, t in enumerate(part.types)]
    inside = pa.StructArray.from_arrays(columns, names=[f"x{j}" for j in range(len(columns))])
    offsets = list(accumulate(map(len, states), initial=0))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), inside)


def cells_in(layout: Layout, table: pa.Table) -> list[Cell]:
    """The inverse of `cells_out`."""
    columns = {n: table[n].combine_chunks() for n in table.column_names}
    states = [_states_in(p, [columns[n] for n, _ in state_fields(p)]) for p in layout.parts]
    return list(zip(*states))


def _states_in(part: StatePart, columns: list[pa.Array]) -> list[Any]:
    if not isinstance(part.part.algebra, Multiset):
        return [_known(part, s) for s in objects_in(part, columns)]
    inside = columns[0].flatten()
    rows = list(zip(*(plain(inside.field(j)) for j in range(len(part.types)))))
    ends = np.cumsum(np.diff(np.asarray(columns[0].offsets))).tolist()
    return [rows[a:b] for a, b in zip((0, *ends), ends)]
