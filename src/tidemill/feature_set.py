"""Feature sets: named joins of one stream with others, the same in training and in serving."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from tidemill.core.errors import UserError
from tidemill.core.explanation import Explanation
from tidemill.core.schema import schema as read_schema
from tidemill.features.definition import Definition, Member, define, described
from tidemill.features.labels import entity_streams
from tidemill.plan.nodes import with_held
from tidemill.query import Query
from tidemill.stream import IntervalJoined, Stream

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pandas
    import pyarrow as pa

    from tidemill.features.server import FeatureServer
    from tidemill.features.verify import Verification
    from tidemill.plan.disorder import Disorder
    from tidemill.plan.emit import Emit, Latency


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
    f version 1: 1 feature of ask, ...
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

    # -- training

    def run(
        self, data: Any = None, /, *, disorder: Disorder | None = None, emit: Emit | None = None,
        progress: bool = False, **inputs: Any,
    ) -> pa.Table:  # fmt: skip
        """The features of each row of the entity, in this process, as `run` of a query.

        The schema says what it is: `table.schema.metadata` has the name, version and fingerprint of the set
        and the features that leak, and `table.schema.field("n").metadata` says what the feature `n` is.
        """
        import pyarrow as pa

        found = super().run(data, disorder=disorder, emit=emit, progress=progress, **inputs)
        return pa.Table.from_arrays(found.columns, schema=self.definition.marked(found.schema))

    @property
    def _arrow_schema(self) -> pa.Schema:
        return self.definition.marked(super()._arrow_schema)

    def to_pandas(self, data: Any = None, /, **inputs: Any) -> pandas.DataFrame:
        """`run`, as a pandas DataFrame; its `attrs` have what the metadata of the table says of the set."""
        found = super().to_pandas(data, **inputs)
        found.attrs |= {f"tidemill.{name}": value for name, value in self.definition.about.items()}
        return found

    def with_labels(self, **types: Any) -> FeatureSet:
        """The same features of rows of the entity that have more columns, such as what a model shall predict.

        Labels pass through, and are no features. The types are those of `tm.stream`.

        >>> import tidemill as tm
        >>> ask = tm.stream("ask", time="t", schema={"t": "int64", "user": "int64"})
        >>> before = ask.interval_join(ask, on="user", preceding=60, closed="left").agg(n=tm.count())
        >>> known = tm.features("known", entity=ask, features=[before])
        >>> asked = [{"t": 3, "user": 7, "bought": False}, {"t": 9, "user": 7, "bought": True}]
        >>> known.with_labels(bought="bool").run(ask=asked).to_pylist()
        [{'t': 3, 'user': 7, 'bought': False, 'n': 0}, {'t': 9, 'user': 7, 'bought': True, 'n': 1}]
        """
        step = f"features {self.name!r} with_labels"
        return FeatureSet(self.definition.with_labels(read_schema(types, step=step), step=step))

    def offline(
        self, spark: Any, entity: Any, sources: Mapping[str, Any] | None = None, *,
        labels: str | Iterable[str] = (), detect: str = "auto",
    ) -> Any:  # fmt: skip
        """A training set on Spark: a lazy DataFrame with each row of the entity and its features at its time.

        `entity` is a DataFrame with the rows of the entity stream, `sources` are the others by name. `labels`
        are columns of the entity that pass through. The metadata of each column of the result says what the
        feature is, and whether it leaks: `df.schema["n"].metadata`.
        """
        from tidemill.spark.frames import require_batch, with_metadata

        step, streams = f"features {self.name!r} offline", list(entity_streams(self.definition.entity))
        if len(streams) > 1:
            raise UserError(
                step, expected="an entity of one stream", got=f"one of {streams}",
                hint=f"write .on_spark(spark).run({', '.join(f'{n}=...' for n in streams)})",
            )  # fmt: skip
        require_batch(step, entity)
        asked, names = self, [labels] if isinstance(labels, str) else list(labels)
        if names:
            fields = {f.name: f for f in entity.schema.fields}
            for name in names:
                if name not in fields:
                    raise UserError(step, expected=f"labels= among {entity.columns}", got=repr(name))
            kinds = read_schema(type(entity.schema)([fields[n] for n in names]), step=step)
            asked = FeatureSet(self.definition.with_labels(kinds, step=step))
        inputs = {**(sources or {}), streams[0]: entity}
        found = asked.on_spark(spark, detect=detect).run(**inputs)
        return with_metadata(found, self.definition.columns())

    # -- serving

    def live(
        self, disorder: Disorder | None = None, *, emit: Emit | None = None, latency: Latency | None = None,
        threads: int = 1, pool: Executor | None = None, answers: Literal["exact", "on arrival"] = "exact",
    ) -> FeatureServer:  # fmt: skip
        """A live query that gives features, as `live` of a query; see `online`."""
        from tidemill.features.server import FeatureServer

        options: dict[str, Any] = {"emit": emit, "latency": latency, "answers": answers}
        options |= {"threads": threads, "pool": pool}
        return FeatureServer(self.definition, self.optimized, disorder, **options)

    def online(
        self, disorder: Disorder | None = None, *, answers: Literal["exact", "on arrival"] = "exact",
        threads: int = 1, pool: Executor | None = None,
    ) -> FeatureServer:  # fmt: skip
        """A server of features: push rows of all streams as they come, and get those of the entity back.

        Each row comes when its features can no longer change; with `answers="on arrival"`, in the call that
        pushes it, with the features of the rows that came so far. See `tm.Query.live` for the options.

        >>> import tidemill as tm
        >>> ask = tm.stream("ask", time="t", schema={"t": "int64", "user": "int64"})
        >>> buy = tm.stream("buy", time="t", schema={"t": "int64", "user": "int64"})
        >>> recent = ask.interval_join(buy, on="user", preceding=60).agg(n=tm.count())
        >>> server = tm.features("known", entity=ask, features=[recent]).online(tm.Disorder(slack=0))
        >>> server.push(buy={"t": 3, "user": 7}).num_rows, server.push(ask={"t": 9, "user": 7}).num_rows
        (0, 0)
        >>> server.punctuate(10).to_pylist()
        [{'t': 9, 'user': 7, 'n': 1}]
        """
        return self.live(disorder, threads=threads, pool=pool, answers=answers)

    # -- proof

    def verify(
        self, sample: Mapping[str, Any] | None = None, /, *, runs: int = 3, seed: int = 0, spark: Any = None,
        **inputs: Any,
    ) -> Verification:  # fmt: skip
        """Replay a sample of history through the online engine, and compare it with the answer of history.

        The sample is inputs by name, as for `run`. Each of the `runs` pushes it in random batches, streams
        in a random interleaving, rows out of order, sometimes a restart; its seed repeats it.
        With `spark`, the answer of history is that of Spark. Every row of the entity is compared, floats but
        for their last bits.

        >>> import tidemill as tm
        >>> ask = tm.stream("ask", time="t", schema={"t": "int64", "user": "int64"})
        >>> buy = tm.stream("buy", time="t", schema={"t": "int64", "user": "int64"})
        >>> recent = ask.interval_join(buy, on="user", preceding=60).agg(n=tm.count())
        >>> known = tm.features("known", entity=ask, features=[recent])
        >>> rows = [{"t": 7 * i % 100, "user": i % 3} for i in range(40)]
        >>> known.verify(ask=rows, buy=rows)
        known version 1: 120 rows compared in 3 replays (seeds 0, 1, 2), none differs
        """
        from tidemill.features.verify import verify
        from tidemill.plan.faults import check_inputs

        for name, given, least in (("runs", runs, 1), ("seed", seed, 0)):
            if isinstance(given, bool) or not isinstance(given, int) or given < least:
                raise UserError("verify", expected=f"{name}= a number of at least {least}", got=repr(given))
        given_inputs = with_held(self.plan, {**(sample or {}), **inputs})
        check_inputs(self.plan, given_inputs, step="verify")

        def offline(definition: Definition, tables: dict[str, pa.Table]) -> pa.Table:
            if spark is None:
                return FeatureSet(definition).run(**tables)
            frames = {name: spark.createDataFrame(table) for name, table in tables.items()}
            return FeatureSet(definition).on_spark(spark).run(**frames).toArrow()

        def online(definition: Definition, disorder: Disorder) -> FeatureServer:
            return FeatureSet(definition).online(disorder)

        return verify(self.definition, given_inputs, runs=runs, seed=seed, offline=offline, online=online)

    # -- what it is

    def explain(self, data: Any = None, /, **inputs: Any) -> Explanation:
        """As of a query, after a list of the features."""
        return Explanation({"features": str(self.definition), **super().explain(data, **inputs).sections})

    def __repr__(self) -> str:
        return str(self.definition)

    def _repr_html_(self) -> str:
        return self.definition.as_html()
