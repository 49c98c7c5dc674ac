"""Approximate aggregates by DataSketches: HLL for distinct counts, KLL for quantiles.

The binary form is the one that Spark's own sketch functions read and write, so a sketch made on
one side merges on the other. `datasketches` is imported when the first sketch is made.

What an HLL sketch says depends on the set of values only, see `lower`. A KLL sketch tosses coins
when it grows beyond its size: its quantiles differ from run to run, within its error bound. They
are the one exception to *same answer*.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidemill.aggregates.algebra import Aggregate, NamedLower, Part, Sketch
from tidemill.core.errors import UserError
from tidemill.core.types import BINARY, FLOAT64, INT64, DataType
from tidemill.expr.fluent import Operand, argument
from tidemill.expr.nodes import Cast, Node

RESULT: dict[str, DataType] = {
    "estimate": INT64, "sketch_quantile": FLOAT64, "hll_bytes": BINARY, "kll_bytes": BINARY,
}  # fmt: skip


def approximate_distinct(x: Node, size: int) -> Aggregate:
    return _sketched("distinct_count", x, _hll(size), NamedLower("estimate"), 0, method="hll")


def approximate_quantile(x: Node, q: float, size: int) -> Aggregate:
    return _sketched("quantile", x, _kll(size), NamedLower("sketch_quantile", (q,)), q=q, method="kll")


def distinct_sketch(x: Operand, *, size: int = 12) -> Aggregate:
    """An HLL sketch in its compact binary form; Spark's `hll_sketch_estimate` reads it."""
    return _sketched("distinct_sketch", argument(x), _hll(size), NamedLower("hll_bytes"))


def quantile_sketch(x: Operand, *, size: int = 200) -> Aggregate:
    """A KLL sketch of doubles in its binary form; Spark's `kll_sketch_*_double` read it."""
    return _sketched("quantile_sketch", argument(x), _kll(size), NamedLower("kll_bytes"))


def _sketched(
    name: str, x: Node, sketch: Sketch, lower: NamedLower, empty: Any = None, **params: Any
) -> Aggregate:
    value = Cast(x, FLOAT64) if sketch.kind == "kll" else x
    shown = (*params.items(), ("size", sketch.size))
    return Aggregate(name, (x,), (Part(sketch, (value,)),), lower, empty, shown)


def _hll(size: int) -> Sketch:
    if isinstance(size, bool) or not isinstance(size, int) or not 7 <= size <= 21:
        raise UserError("hll sketch", expected="size between 7 and 21", got=repr(size))
    return Sketch("hll", size)


def _kll(size: int) -> Sketch:
    if isinstance(size, bool) or not isinstance(size, int) or not 8 <= size <= 65535:
        raise UserError("kll sketch", expected="size between 8 and 65535", got=repr(size))
    return Sketch("kll", size)


def check_argument(sketch: Sketch, kind: DataType, *, step: str) -> None:
    """Refuse types for which HLL is not the same everywhere; Spark has no HLL of doubles."""
    if sketch.kind == "hll" and kind.kind not in ("int64", "string", "timestamp", "duration"):
        raise UserError(
            step, expected="an int, a string or a timestamp to count distinct values of by HLL",
            got=repr(kind), hint="cast it, or use method='exact'",
        )  # fmt: skip


# --- the algebra, on sketch objects ---------------------------------------------------------------


def new(sketch: Sketch) -> Any:
    import datasketches

    if sketch.kind == "hll":
        return datasketches.hll_sketch(sketch.size, datasketches.tgt_hll_type.HLL_8)
    return datasketches.kll_doubles_sketch(sketch.size)


def update(sketch: Sketch, state: Any, values: Iterable[Any]) -> Any:
    """Lift and combine many values at once."""
    if sketch.kind == "kll":
        import numpy as np

        state.update(np.ascontiguousarray(values, dtype=np.float64))
        return state
    for value in values:
        state.update(value)
    return state


def combine(sketch: Sketch, a: Any, b: Any) -> Any:
    """A new sketch of the values of both; neither argument changes."""
    import datasketches

    if sketch.kind == "hll":
        union = datasketches.hll_union(sketch.size)
        union.update(a)
        union.update(b)
        return union.get_result(datasketches.tgt_hll_type.HLL_8)
    merged = datasketches.kll_doubles_sketch.deserialize(a.serialize())
    merged.merge(b)
    return merged


def serialize(sketch: Sketch, state: Any) -> bytes:
    return bytes(state.serialize_updatable() if sketch.kind == "hll" else state.serialize())


def deserialize(sketch: Sketch, data: bytes) -> Any:
    import datasketches

    if sketch.kind == "hll":
        return datasketches.hll_sketch.deserialize(data)
    return datasketches.kll_doubles_sketch.deserialize(data)


def _by_registers(sketch: Sketch, state: Any) -> Any:
    """The same sketch, with an estimate that does not depend on the order of the values.

    A sketch that took values one by one estimates by their order; one that was merged estimates by its
    registers, which depend on the set of values only. So the sketch is merged with itself.
    """
    import datasketches

    union = datasketches.hll_union(sketch.size)
    union.update(state)
    union.update(state)
    return union.get_result(datasketches.tgt_hll_type.HLL_8)


def lower(sketch: Sketch, state: Any, how: NamedLower) -> Any:
    if sketch.kind == "hll":
        state = _by_registers(sketch, state)
    if how.name == "estimate":
        return round(state.get_estimate())
    if how.name == "sketch_quantile":
        # A NaN never enters a KLL sketch, so one of NaNs alone is empty.
        return None if state.is_empty() else state.get_quantile(how.params[0])
    return serialize(sketch, state)
