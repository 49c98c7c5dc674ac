"""Windowing attributes that are not the time of the stream (paper 003, 7.1).

Flows may arrive in order of their end and be windowed by their start. Their time says nothing about the start
of flows to come, so such windows close when the input promises something about the attribute itself
(`attribute_limits`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema, internal, users_part
from tidemill.core.time import FARTHEST, Domain, duration, instant, instant_domain
from tidemill.core.types import DURATION, FLOAT64, INT64, DataType
from tidemill.expr.evaluate import evaluate
from tidemill.expr.fluent import computed
from tidemill.expr.nodes import Column, Literal, Node
from tidemill.expr.typing import resolve
from tidemill.optimize.fold_constants import folded
from tidemill.plan.nodes import Plan, Source, WindowAggregate
from tidemill.plan.sharing import used_often
from tidemill.plan.stages import Stage, stage_of
from tidemill.windows.real_grid import tick_of
from tidemill.windows.spec import GridWindow, LastRows, Rows

_STEPS = " in steps of "
"""Stands in the name of an attribute over floats, before the size of its ticks."""


@dataclass(frozen=True)
class Attribute:
    """What windows are over, as ticks."""

    name: str
    """The column of the windows' input."""
    ticks: Node
    """The ticks of a row, over the columns of the stream."""
    kind: DataType
    grain: Fraction | None
    """Over floats, what a tick stands for."""

    def __str__(self) -> str:
        return users_part(self.name).split(_STEPS)[0]

    def matches(self, on: Any, schema: Schema) -> bool:
        """Return whether a user means this attribute: by the name of its column, or by its expression."""
        if isinstance(on, str) and on == self.name:
            return True
        node: Node = Column(on) if isinstance(on, str) else computed(on, step="punctuate on=")
        named = node.name if isinstance(node, Column) else internal(str(node))
        if named == self.name or internal(str(node)) == self.name.split(_STEPS)[0]:
            return True  # over a column that the query computes, which the stream does not have
        if isinstance(node, Column) and node.name not in schema:
            return False
        node = node if self.grain is None else tick_of(node, self.grain)
        return folded(resolve(node, schema, step="punctuate on=")) == self.ticks

    def at(self, value: Any) -> int:
        """Return the ticks of a value of the attribute."""
        step = f"punctuate on={self}"
        if self.grain is not None:
            real = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not real or not math.isfinite(value):
                raise UserError(step, expected="a finite number", got=repr(value))
            ticks: int = evaluate(tick_of(Literal(float(value), FLOAT64), self.grain), {}, Schema(()))
        elif self.kind == DURATION and not isinstance(value, int):
            ticks = duration(value, step=step).ticks
        elif self.kind == INT64 and (isinstance(value, float) or instant_domain(value) is Domain.CLOCK):
            raise UserError(step, expected="an int", got=repr(value))
        else:
            ticks = instant(value, step=step)
        if abs(ticks) >= FARTHEST:
            raise UserError(step, expected="a value within 2**61 ticks of zero", got=repr(value))
        return ticks


def attributes_of(plan: Plan, stream: str) -> list[Attribute]:
    """Return what windows that read a stream directly are over, where promises about it close them."""
    shared, found = used_often(plan), []
    for node in plan.walk():
        if isinstance(node, WindowAggregate):
            stage = stage_of(node.input, shared)
            if isinstance(stage.base, Source) and stage.base.name == stream:
                found.append(attribute_of(node, stage))
    return list(dict.fromkeys(attribute for attribute in found if attribute is not None))


def attribute_of(plan: WindowAggregate, stage: Stage) -> Attribute | None:
    """Return what windows are over, unless it is the time or they number rows."""
    specs = [w.spec for w in plan.windows]
    numbered = isinstance(specs[0], (Rows, LastRows)) or any(getattr(s, "order_by", None) for s in specs)
    if plan.attribute == plan.input.time or numbered:
        return None
    grain = specs[0].grain if isinstance(specs[0], GridWindow) else None
    return Attribute(plan.attribute, stage.output(plan.attribute), plan.bound_type, grain)
