"""Every built-in aggregate by its name: the one table that files, engines and surfaces look it up in.

A new aggregate needs its algebra, a function that makes it, and its place here. `tidemill.__init__` exports
it, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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


def _family(name: str, *makers: Callable[..., Aggregate], **rules: Any) -> list[BuiltIn]:
    return [BuiltIn(make, name, **rules) for make in makers]


_ALL = (
    *_family("counting", basic.count, basic.count_if, basic.any, basic.all),
    *_family("sums", basic.sum, basic.mean, basic.product, numbers=(0,)),
    *_family("extremes", basic.min, basic.max),
    *_family("moments", moments.var, moments.std, numbers=(0,), of_instants=True),
    *_family("moments", moments.covariance, moments.correlation, numbers=(0, 1), of_instants=True),
    *_family("ordered", ordered.first, ordered.last, ordered.arg_min, ordered.arg_max),
    *_family("paths", ordered.ewma, ordered.drawdown, numbers=(0,), of_instants=True),
    *_family("holistic", holistic.quantile, holistic.median, numbers=(0,), of_instants=True),
    *_family("holistic", holistic.distinct_count, holistic.top_k, holistic.bottom_k),
    *_family("holistic", holistic.collect, holistic.entropy),
    *_family("holistic", holistic.first_k, holistic.last_k, holistic.top_rows),
    *_family("histograms", holistic.sum_by, holistic.mean_by, numbers=(0,)),
    *_family("histograms", holistic.count_by, holistic.min_by, holistic.max_by, holistic.top_keys),
    *_family("sketches", sketches.distinct_sketch, sketches.quantile_sketch),
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
