"""Decide how each part of a query's state is stored."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.aggregates.algebra import NamedLower
from tidemill.aggregates.layout import Layout
from tidemill.aggregates.values import functions
from tidemill.codegen.algebra import compilable, lower_refusal, unwritable
from tidemill.core.schema import Schema
from tidemill.expr.nodes import Node
from tidemill.jit.user_functions import NOT_YET, postponed


@dataclass(frozen=True)
class StatePlan:
    """How each part of the state is stored; fixed for the whole query."""

    records: tuple[int, ...]
    """Compiled partials, updated row by row in any order."""
    ordered: tuple[int, ...]
    """Compiled partials of rows that must be combined in order, so the rows are kept."""
    multisets: tuple[int, ...]
    objects: tuple[int, ...]
    """Sketches, and algebras that Numba cannot compile: Python objects."""
    row_objects: tuple[int, ...] = ()
    """Such algebras of rows that must be combined in order, or can be taken out: the rows are kept."""

    @property
    def kept(self) -> tuple[int, ...]:
        """The parts whose rows are kept, for `objects` until partials are read."""
        return (*self.ordered, *self.multisets, *self.objects, *self.row_objects)

    @property
    def in_python(self) -> tuple[int, ...]:
        """The parts whose functions run in Python."""
        return (*self.objects, *self.row_objects)

    @property
    def saved_rows(self) -> tuple[int, ...]:
        """The parts of which a snapshot has the rows, besides multisets."""
        return (*self.ordered, *self.row_objects)

    @property
    def fixed(self) -> tuple[int, ...]:
        return (*self.records, *self.ordered)


def plan_states(layout: Layout, sliding: tuple[str, ...] = ()) -> StatePlan:
    """Decide how parts are stored, given how each is moved from window to window."""
    objects = list(layout.sketches)
    row_objects, records, ordered = [], [], []
    by_rows = [index for index, how in enumerate(sliding) if how == "subtract_rows"]
    for index in layout.fixed:
        part = layout.parts[index]
        if why := refusal(layout, index):
            if why == NOT_YET:
                postponed(refusal, layout, index)
            folds = part.part.algebra.commutative and index not in by_rows
            if folds:
                objects.append(index)
            else:
                row_objects.append(index)
        elif part.part.algebra.commutative:
            records.append(index)
        else:
            ordered.append(index)
    return StatePlan(
        tuple(records), tuple(ordered), layout.multisets, tuple(objects), tuple(row_objects)
    )


def refusal(layout: Layout, index: int) -> str:
    """Return why a part of fixed size cannot be compiled; empty if it can."""
    why = compilable(layout.parts[index])
    if why:
        return why
    for result in layout.results:
        lower = result.lower
        if index not in result.parts or isinstance(lower, NamedLower):
            continue
        if isinstance(lower, Node):
            states = Schema(tuple(f for p in result.parts for f in layout.parts[p].columns))
            if why := unwritable((lower,), states):
                return why
        else:
            if not result.type.is_fixed:
                return f"a {result.type!r} is not a machine number"
            identities = tuple(tuple(functions(layout.parts[p]).identity()) for p in result.parts)
            if why := lower_refusal(lower, identities):
                return why
    return ""
