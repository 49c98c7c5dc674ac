"""Feature sets: named joins of one stream with others, the same in training and in serving."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tidemill.core.errors import UserError
from tidemill.core.explanation import Explanation
from tidemill.features.definition import Definition, Member, define, described
from tidemill.query import Query
from tidemill.stream import IntervalJoined, Stream

if TYPE_CHECKING:
    import pyarrow as pa


class Described:
    """A stream with text about its features; see `tm.feature`."""

    def __init__(self, stream: Stream, docs: dict[str, str]) -> None:
        self.stream, self.docs = stream, docs

    def __repr__(self) -> str:
        return f"feature {self.stream!r}"


def feature(stream: Stream, /, **docs: str) -> Described:
    """A member of a feature set, with text about each of its features: `tm.feature(joined, n="orders")`.

    >>> import tidemill as tm
    >>> ask = tm.stream("ask", time="t", schema={"t": "int64", "user": "int64"})
    >>> buy = tm.stream("buy", time="t", schema={"t": "int64", "user": "int64"})
    >>> recent = ask.interval_join(buy, on="user", preceding=60).agg(n=tm.count())
    >>> tm.features("f", entity=ask, features=[tm.feature(recent, n="orders of an hour")])
    f version 1: 1 feature of ask, 0c9fbb9f1c4bbf5d
      n  int64  count() of buy on user in [t-60, t] — orders of an hour
    """
    if not isinstance(stream, Stream):
        raise _no_member("feature", stream)
    return Described(stream, docs)


def _no_member(step: str, given: Any) -> UserError:
    unfinished = isinstance(given, IntervalJoined)
    return UserError(
        step, expected="a stream, such as entity.interval_join(probe, ...).agg(...)",
        got=f"{given!r:.200}" if unfinished else f"{given!r:.80} ({type(given).__name__})",
        hint="ask for aggregates: .agg(n=tm.count())" if unfinished else "",
    )  # fmt: skip


def features(
    name: str,
    *,
    entity: Stream,
    features: Iterable[Stream | Described],
    version: int = 1,
    doc: str = "",
) -> FeatureSet:
    """A named set of features of the rows of one stream, the *entity*: what is known at the time of each row.

    Each member is a stream that was made from the entity by `interval_join(...).agg(...)`, `last_join` and
    `with_columns`; `select` chooses among the columns that it adds. `tm.feature` adds text about them.
    The set has each row of the entity, once, with the features of all members.

    >>> import tidemill as tm
    >>> ask = tm.stream("ask", time="t", schema={"t": "int64", "user": "int64"})
    >>> buy = tm.stream("buy", time="t", schema={"t": "int64", "user": "int64", "paid": "int64"})
    >>> known = tm.features("known", entity=ask, features=[
    ...     ask.interval_join(buy, on="user", preceding=60).agg(n=tm.count(), paid=tm.sum("paid")),
    ...     ask.last_join(buy, on="user", suffix="_last").select(before="paid"),
    ... ])
    >>> bought = [{"t": 3, "user": 7, "paid": 5}, {"t": 90, "user": 7, "paid": 6}]
    >>> known.run(ask=[{"t": 99, "user": 7}], buy=bought).to_pylist()
    [{'t': 99, 'user': 7, 'n': 1, 'paid': 6, 'before': 6}]
    """
    step = f"features {name!r}"
    if not isinstance(entity, Stream) or entity._scope:
        raise UserError(
            step, expected="entity= a stream", got=f"{entity!r:.80} ({type(entity).__name__})"
        )
    listed = [features] if isinstance(features, (Stream, Described)) else features
    members = []
    for given in listed if isinstance(listed, Iterable) else [listed]:
        one = given if isinstance(given, Described) else Described(given, {})
        if not isinstance(one.stream, Stream):
            raise _no_member(step, one.stream)
        members.append(Member(one.stream.plan, one.docs))
    return FeatureSet(define(name, entity.plan, members, version, doc))


class FeatureSet(Query):
    """Named features of the rows of one stream; make one with `tm.features`.

    It is a query on the streams that its joins read, so `run`, `explain` and the others are those of queries.
    """

    def __init__(self, definition: Definition) -> None:
        super().__init__(definition.plan)
        self.definition = definition

    @property
    def name(self) -> str:
        """The name of the set."""
        return self.definition.name

    @property
    def version(self) -> int:
        """The version of the set."""
        return self.definition.version

    @property
    def fingerprint(self) -> str:
        """A hash of the definition: sets with the same one give the same features of the same rows.

        Names and versions of sets, and text, do not matter; of functions in Python, the name counts.
        """
        return self.definition.fingerprint

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features."""
        return tuple(f.name for f in self.definition.features)

    @property
    def leaks(self) -> tuple[str, ...]:
        """The features that depend on events after their row, so that a model would know the future."""
        return tuple(f.name for f in self.definition.leaking)

    @functools.cached_property
    def query(self) -> Stream:
        """The set as a stream: filter, select or window its rows."""
        return Stream(self.plan)

    def describe(self) -> pa.Table:
        """A table of the features: what each is, over which window, whether it leaks, what a server keeps."""
        return described(self.definition)

    def explain(self, **inputs: Any) -> Explanation:
        """As of a query, after a list of the features."""
        return Explanation({"features": str(self.definition), **super().explain(**inputs).sections})

    def __repr__(self) -> str:
        return str(self.definition)

    def _repr_html_(self) -> str:
        return self.definition.as_html()
