"""Every built-in aggregate by its name: the one table that files, engines and surfaces look it up in.

A new aggregate needs its algebra, a function that makes it, and a line here. `tidemill.__init__` exports
it, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemill.aggregates import basic, holistic, moments, ordered, sketches
from tidemill.aggregates.algebra import Aggregate, Algebra


@dataclass(frozen=True)
class BuiltIn:
    """One built-in aggregate. The signature of `make` is that of the name that users call."""

    make: Callable[..., Aggregate]
    family: str
    """Aggregates of a family keep partials of one kind and are tested together."""
    numbers: tuple[int, ...] = ()
    """The arguments that it computes with, by position: they must be numbers or durations."""
    of_instants: bool = False
    """Whether these may also be instants, as a median may and a sum may not."""

    @property
    def name(self) -> str:
        return self.make.__name__


_ALL = (
    BuiltIn(basic.count, "counting"),
    BuiltIn(basic.count_if, "counting"),
    BuiltIn(basic.any, "counting"),
    BuiltIn(basic.all, "counting"),
    BuiltIn(basic.sum, "sums", numbers=(0,)),
    BuiltIn(basic.mean, "sums", numbers=(0,)),
    BuiltIn(basic.product, "sums", numbers=(0,)),
    BuiltIn(basic.min, "extremes"),
    BuiltIn(basic.max, "extremes"),
    BuiltIn(moments.var, "moments", numbers=(0,), of_instants=True),
    BuiltIn(moments.std, "moments", numbers=(0,), of_instants=True),
    BuiltIn(moments.covariance, "moments", numbers=(0, 1), of_instants=True),
    BuiltIn(moments.correlation, "moments", numbers=(0, 1), of_instants=True),
    BuiltIn(ordered.first, "ordered"),
    BuiltIn(ordered.last, "ordered"),
    BuiltIn(ordered.arg_min, "ordered"),
    BuiltIn(ordered.arg_max, "ordered"),
    BuiltIn(ordered.ewma, "paths", numbers=(0,), of_instants=True),
    BuiltIn(ordered.drawdown, "paths", numbers=(0,), of_instants=True),
    BuiltIn(holistic.quantile, "holistic", numbers=(0,), of_instants=True),
    BuiltIn(holistic.median, "holistic", numbers=(0,), of_instants=True),
    BuiltIn(holistic.distinct_count, "holistic"),
    BuiltIn(holistic.top_k, "holistic"),
    BuiltIn(holistic.bottom_k, "holistic"),
    BuiltIn(holistic.collect, "holistic"),
    BuiltIn(holistic.entropy, "holistic"),
    BuiltIn(holistic.count_by, "histograms"),
    BuiltIn(holistic.sum_by, "histograms", numbers=(0,)),
    BuiltIn(holistic.mean_by, "histograms", numbers=(0,)),
    BuiltIn(holistic.min_by, "histograms"),
    BuiltIn(holistic.max_by, "histograms"),
    BuiltIn(holistic.top_keys, "histograms"),
    BuiltIn(sketches.distinct_sketch, "sketches"),
    BuiltIn(sketches.quantile_sketch, "sketches"),
)
AGGREGATES = {entry.name: entry for entry in _ALL}


def entry_of(aggregate: Aggregate) -> BuiltIn | None:
    """The entry of an aggregate; None for a user's own, which may have any name.

    >>> entry_of(basic.sum("x")).family
    'sums'
    """
    algebras = [part.algebra for part in aggregate.parts]
    if any(isinstance(a, Algebra) and a.factory is None for a in algebras):
        return None
    return AGGREGATES.get(aggregate.name)
