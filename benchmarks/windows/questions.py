"""Questions in the words of Tidemill, DuckDB and Polars. The page shows the text that runs.

Every form gives the rows that Tidemill gives: windows aligned to the epoch, the first ones (which start
before the first row) included. Peers get the fastest of the forms that were tried:

- Hopping windows aggregate panes first. Each pane is then joined to the windows that it is in: a cross join
  with the numbers of windows was ahead of `unnest` and `explode`, and all were ahead of joining rows.
- Where windows overlap much and rows are dense, DuckDB has a row for each key and window, and a frame of
  panes slides over them.
  Polars does so where they overlap very much; before that, `group_by_dynamic` is as fast.
- Without a key, `group_by_dynamic` is Polars' fastest form for tumbling windows where rows are known to be in
  time order, as Tidemill does not know; the form for any order is beside it.
- Aggregates that panes cannot give (exact quantiles, distinct counts) take rows in place of panes.
- Sessions: DuckDB numbers them with `lag` and a running sum, Polars sorts by key and compares neighbours.
- The last row of a key: both look for its place first and then fetch its columns.
- Polars runs on its streaming engine where that is faster than its engine in memory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import tidemill as tm
from benchmarks import questions
from benchmarks.data import HOUR, Shape
from tidemill.core.time import duration

Named = TypeVar("Named")

TWO_DAYS = Shape(8_000_000)
"""What events are like where a question does not say."""

MUCH, VERY_MUCH = 24, 100
"""How many windows a row is in where they overlap much, and where even more."""

geometric_mean = tm.aggregate(
    "geometric_mean",
    identity=lambda: (0.0, 0),
    lift=lambda x: (math.log(x), 1),
    combine=lambda a, b: (a[0] + b[0], a[1] + b[1]),
    inverse=lambda a, b: (a[0] - b[0], a[1] - b[1]),
    lower=lambda s: math.exp(s[0] / s[1]),
    returns="float64",
)


class Question(questions.Question):
    """A question about windows of `events`."""

    names: ClassVar[Mapping[str, Any]] = {"geometric_mean": geometric_mean}


@dataclass(frozen=True)
class Aggregate:
    """An aggregate of rows; and of the partials of panes, where these give it."""

    name: str
    """The column of the result."""
    tidemill: str
    duckdb: str
    polars: str
    partials: tuple[str, ...] = ()
    """Names in `PARTIALS`."""
    duckdb_of_panes: str = ""
    """`{over}` stands for the frame of a window function."""
    polars_of_panes: str = ""
    column: str | None = "v"
    """The column that it reads."""
    engine: str = "streaming"
    """Polars' faster engine for it, over rows."""


def _v(function: str) -> str:
    return f'pl.col("v").{function}()'


PARTIALS = {
    "s": ("sum(v)", _v("sum")),
    "n": ("count(*)", "pl.len().cast(pl.Int64)"),
    "lo": ("min(v)", _v("min")),
    "hi": ("max(v)", _v("max")),
    "u": ("max(user)", 'pl.col("user").max()'),
    "l": ("sum(ln(v))", 'pl.col("v").log().sum()'),
}
"""What a pane keeps, in DuckDB and in Polars."""


AGGREGATES = {
    "sum": Aggregate(
        "total", "tm.sum(col.v)", "sum(v)", _v("sum"),
        ("s",), "sum(s){over}", 'pl.col("s").sum()',
    ),
    "count": Aggregate(
        "n", "tm.count()", "count(*)", "pl.len()",
        ("n",), "(sum(n){over})::BIGINT", 'pl.col("n").sum()', column=None,
    ),
    "mean": Aggregate(
        "mean", "tm.mean(col.v)", "avg(v)", _v("mean"),
        ("s", "n"), "sum(s){over} / sum(n){over}", 'pl.col("s").sum() / pl.col("n").sum()',
    ),
    "min": Aggregate(
        "low", "tm.min(col.v)", "min(v)", _v("min"), ("lo",), "min(lo){over}", 'pl.col("lo").min()'
    ),
    "max": Aggregate(
        "high", "tm.max(col.v)", "max(v)", _v("max"), ("hi",), "max(hi){over}", 'pl.col("hi").max()'
    ),
    "max user": Aggregate(
        "user", "tm.max(col.user)", "max(user)", 'pl.col("user").max()',
        ("u",), "max(u){over}", 'pl.col("u").max()', column="user",
    ),
    "geometric mean": Aggregate(
        "gmean", "geometric_mean(col.v)", "exp(avg(ln(v)))", 'pl.col("v").log().mean().exp()',
        ("l", "n"), "exp(sum(l){over} / sum(n){over})",
        '(pl.col("l").sum() / pl.col("n").sum()).exp()',
    ),
    "median": Aggregate(
        "median", "tm.median(col.v)", "quantile_cont(v, 0.5)", _v("median"), engine="in-memory"
    ),
    "distinct": Aggregate(
        "users", "tm.distinct_count(col.user)", "count(DISTINCT user)", 'pl.col("user").n_unique()',
        column="user",
    ),
}  # fmt: skip

# A condition here, in DuckDB, in Polars.
CONDITIONS = {
    "5 % of users": ("col.user % 100 < 5", "user % 100 < 5", 'pl.col("user") % 100 < 5'),
    "is_in": tuple(
        form.format(", ".join(str(i * 5) for i in range(20)))
        for form in ("col.k.is_in([{}])", "k IN ({})", 'pl.col("k").is_in([{}])')
    ),
    "string is_in": tuple(
        form.format(", ".join(f"'key-{i * 5:07d}'" for i in range(20)))
        for form in ("col.name.is_in([{}])", "name IN ({})", 'pl.col("name").is_in([{}])')
    ),
    "starts_with": (
        'col.name.starts_with("key-000001")', "starts_with(name, 'key-000001')",
        'pl.col("name").str.starts_with("key-000001")',
    ),
    "contains": (
        'col.note.contains("77")', "contains(note, '77')", 'pl.col("note").str.contains("77", literal=True)'
    ),
}  # fmt: skip


def aggregates(names: Sequence[str]) -> list[Aggregate]:
    """The aggregates of these names."""
    return [_known(AGGREGATES, name) for name in names]


def _known(table: Mapping[str, Named], name: str) -> Named:
    if name not in table:
        raise ValueError(f"{name!r} is none of {', '.join(table)}")
    return table[name]


def windows(
    names: Sequence[str], range: str, every: str, *, key: str | None = "k", shape: Shape = TWO_DAYS
) -> Question:
    """Windows of length `range`, one each `every`, for each key or without one. Peers' forms suit the shape.

    `range` is a multiple of `every`.
    """
    asked = aggregates(names)
    length, slide = (duration(d, step="benchmark").ticks for d in (range, every))
    if length % slide:
        raise ValueError(f"range {range} is no multiple of every {every}")
    overlap = length // slide
    results = ", ".join(f"{a.name}={a.tidemill}" for a in asked)
    window = f'tm.tumbling("{range}")' if overlap == 1 else f'tm.hopping("{range}", every="{every}")'
    grouped = "" if key is None else f'.group_by("{key}")'
    ours = f"events{grouped}.window({window}).agg({results})"
    by = ("window_start",) if key is None else (key, "window_start")
    in_panes = all(a.partials for a in asked)
    polars, duckdb = _Polars(asked, key, slide, overlap), _DuckDB(asked, key, slide, overlap)
    ordered = not shape.disorder
    if overlap == 1 and key is None and ordered:
        return Question(
            ours, duckdb.direct(), polars.dynamic(ordered=True), by, "in-memory", any_order=polars.direct()
        )
    if overlap == 1:
        engine = "streaming" if any(a.engine == "streaming" for a in asked) else "in-memory"
        return Question(ours, duckdb.direct(), polars.direct(), by, engine)
    if overlap > MUCH and in_panes and _dense(shape, key, slide, overlap):
        frame = polars.framed() if overlap > VERY_MUCH else polars.dynamic(ordered=ordered)
        return Question(ours, duckdb.framed(), frame, by, "in-memory")
    if in_panes:
        return Question(ours, duckdb.of_panes(), polars.of_panes(), by)
    return Question(ours, duckdb.of_rows(), polars.of_rows(), by)


def last_rows(columns: Sequence[str], every: str, *, key: str = "k", ordered: bool = True) -> Question:
    """The last row of each key in each tumbling window."""
    slide = duration(every, step="benchmark").ticks
    ours = ", ".join(f"{c}=tm.last(col.{c})" for c in columns)
    listed = ", ".join(columns)
    # Late materialisation: only the numbers of the last rows are aggregated.
    duckdb = f"""
SELECT {key}, make_timestamp(w * {slide}) AS window_start,
       make_timestamp((w + 1) * {slide}) AS window_end, {listed}
FROM events JOIN (
    SELECT epoch_us(ts) // {slide} AS w, arg_max(rowid, ts) AS r FROM events GROUP BY {key}, w
) ON events.rowid = r"""
    start = f'(pl.col("w") * {slide}).cast(pl.Datetime("us", "UTC"))'
    names = ", ".join(f'"{c}"' for c in columns)
    polars = f"""(
    events{'' if ordered else '.sort("ts")'}
    .select("{key}", {names}, w=pl.col("ts").to_physical() // {slide})
    .unique(["{key}", "w"], keep="last")
    .with_columns(window_start={start}, window_end={start} + pl.duration(microseconds={slide}))
    .drop("w")
)"""
    query = f'events.group_by("{key}").window(tm.tumbling("{every}")).agg({ours})'
    return Question(query, duckdb.strip(), polars, (key, "window_start"), "in-memory")


def _dense(shape: Shape, key: str | None, slide: int, overlap: int) -> bool:
    """Whether a row for each key and window is less work than each pane once for each of its windows.

    A row with a frame takes about as long as five rows of a join.
    """
    keys, span = shape.keys if key else 1, int(shape.hours * HOUR) // slide
    return 5 * keys * (span + overlap) < min(shape.rows, keys * span) * overlap


def sessions(names: Sequence[str], gap: str, *, key: str = "k", ordered: bool = True) -> Question:
    """Sessions that end after `gap` without a row of the key."""
    asked = aggregates(names)
    ticks = duration(gap, step="benchmark").ticks
    ours = ", ".join(f"{a.name}={a.tidemill}" for a in asked)
    sql = ", ".join(f"{a.duckdb} AS {a.name}" for a in asked)
    frame = ", ".join(f"{a.name}={a.polars}" for a in asked)
    used = _used(asked)
    columns = "".join(f", {c}" for c in used)
    duckdb = f"""
WITH steps AS (
    SELECT {key}, ts{columns}, coalesce(
        epoch_us(ts) - lag(epoch_us(ts)) OVER (PARTITION BY {key} ORDER BY ts) >= {ticks}, true) AS starts
    FROM events
), numbered AS (
    SELECT *, sum(starts::INT) OVER (PARTITION BY {key} ORDER BY ts ROWS UNBOUNDED PRECEDING) AS session
    FROM steps
)
SELECT {key}, min(ts) AS window_start, max(ts) + to_microseconds({ticks}) AS window_end, {sql}
FROM numbered GROUP BY {key}, session"""
    columns = "".join(f', "{c}"' for c in used)
    by = f'"{key}", maintain_order=True' if ordered else f'"{key}", "ts"'
    polars = f"""(
    events.select("{key}", "ts"{columns})
    .sort({by})
    .with_columns(session=(
        (pl.col("{key}") != pl.col("{key}").shift())
        | (pl.col("ts").to_physical().diff() >= {ticks})
    ).fill_null(True).cum_sum())
    .group_by("session")
    .agg(pl.col("{key}").first(), window_start=pl.col("ts").min(), last=pl.col("ts").max(), {frame})
    .with_columns(window_end=pl.col("last") + pl.duration(microseconds={ticks}))
    .drop("session", "last")
)"""
    query = f'events.group_by("{key}").window(tm.session("{gap}")).agg({ours})'
    return Question(query, duckdb.strip(), polars, (key, "window_start"))


def rows(condition: str) -> Question:
    """The rows that satisfy one of `CONDITIONS`."""
    ours, sql, polars = _known(CONDITIONS, condition)
    return Question(
        f"events.where({ours})", f"SELECT * FROM events WHERE {sql}", f"events.filter({polars})",
        ("ts",), "in-memory",
    )  # fmt: skip


def _used(asked: Sequence[Aggregate]) -> list[str]:
    """The columns that aggregates read, the time apart."""
    return list(dict.fromkeys(c for a in asked if (c := a.column)))


_COMBINED = re.compile(r"\.(sum|min|max)\(\)")


class _DuckDB:
    """Forms of windows in SQL."""

    def __init__(self, asked: Sequence[Aggregate], key: str | None, slide: int, overlap: int) -> None:
        self._asked, self._slide, self._overlap = asked, slide, overlap
        self._key = "" if key is None else f"{key}, "
        partials = dict.fromkeys(p for a in asked for p in a.partials)
        self._partials = ", ".join(f"{PARTIALS[p][0]} AS {p}" for p in partials)
        self._names = ", ".join(partials)
        self._columns = "".join(f"{c}, " for c in _used(asked))

    def direct(self) -> str:
        """Each row is in one window."""
        return (
            f"SELECT {self._key}{self._bounds('w')},\n       {self._over_rows()}\n"
            f"FROM (SELECT {self._key}{self._columns}epoch_us(ts) // {self._slide} AS w FROM events)\n"
            f"GROUP BY {self._key}w"
        )

    def of_panes(self) -> str:
        results = ", ".join(f"{a.duckdb_of_panes.format(over='')} AS {a.name}" for a in self._asked)
        return (
            f"WITH panes AS (\n    {self._panes()}\n)\n"
            f"SELECT {self._key}{self._bounds('w')},\n       {results}\n"
            f"FROM (SELECT {self._key}{self._names}, p - i AS w\n"
            f"      FROM panes CROSS JOIN range({self._overlap}) AS r(i))\n"
            f"GROUP BY {self._key}w"
        )

    def of_rows(self) -> str:
        return (
            f"SELECT {self._key}{self._bounds('w')},\n       {self._over_rows()}\n"
            f"FROM (SELECT {self._key}{self._columns}epoch_us(ts) // {self._slide} - i AS w\n"
            f"      FROM events CROSS JOIN range({self._overlap}) AS r(i))\n"
            f"GROUP BY {self._key}w"
        )

    def framed(self) -> str:
        """A row for each key and window; `w` is the last pane of the window."""
        name = self._key.removesuffix(", ")
        each = f"(SELECT DISTINCT {name} FROM panes) CROSS JOIN " if name else ""
        results = ", ".join(f"{a.duckdb_of_panes.format(over=' OVER f')} AS {a.name}" for a in self._asked)
        return (
            f"WITH panes AS (\n    {self._panes(count=True)}\n), grid AS (\n"
            f"    SELECT {self._key}w FROM {each}range(\n"
            f"        (SELECT min(p) FROM panes), (SELECT max(p) + {self._overlap} FROM panes)) AS r(w)\n)\n"
            f"SELECT {self._key}{self._bounds(f'w - {self._overlap - 1}')},\n       {results}\n"
            f"FROM grid LEFT JOIN (SELECT * RENAME (p AS w) FROM panes) USING ({self._key}w)\n"
            f"WINDOW f AS ({f'PARTITION BY {name} ' if name else ''}ORDER BY w "
            f"ROWS BETWEEN {self._overlap - 1} PRECEDING AND CURRENT ROW)\n"
            f"QUALIFY (sum(held) OVER f) > 0"
        )

    def _panes(self, *, count: bool = False) -> str:
        held = ", count(*) AS held" if count else ""
        return (
            f"SELECT {self._key}epoch_us(ts) // {self._slide} AS p, {self._partials}{held} "
            f"FROM events GROUP BY {self._key}p"
        )

    def _over_rows(self) -> str:
        return ", ".join(f"{a.duckdb} AS {a.name}" for a in self._asked)

    def _bounds(self, first: str) -> str:
        start = f"({first}) * {self._slide}" if " " in first else f"{first} * {self._slide}"
        length = self._overlap * self._slide
        return f"make_timestamp({start}) AS window_start, make_timestamp({start} + {length}) AS window_end"


class _Polars:
    """Forms of windows as expressions."""

    def __init__(self, asked: Sequence[Aggregate], key: str | None, slide: int, overlap: int) -> None:
        self._asked, self._key, self._slide, self._overlap = asked, key, slide, overlap
        self._names = "" if key is None else f'"{key}", '
        self._partials = dict.fromkeys(p for a in asked for p in a.partials)
        self._pane = f'pl.col("ts").to_physical() // {slide}'

    def direct(self) -> str:
        return self._grouped(f"events\n    .group_by({self._names}w={self._pane})", self._over_rows())

    def of_panes(self) -> str:
        results = ", ".join(f"{a.name}={a.polars_of_panes}" for a in self._asked)
        return self._grouped(f"{self._panes('p')}\n    {self._crossed('p', *self._partials)}", results)

    def of_rows(self) -> str:
        source = f"events\n    .with_columns(p={self._pane})"
        return self._grouped(f"{source}\n    {self._crossed('p', *_used(self._asked))}", self._over_rows())

    def dynamic(self, *, ordered: bool) -> str:
        """The offset makes it start with the first window that has a row."""
        length = self._slide * self._overlap
        by = "" if self._key is None else f', group_by="{self._key}"'
        sort = "" if ordered else '.sort("ts")'
        return (
            f"(\n    events{sort}\n    .group_by_dynamic(\n"
            f'        "ts", every="{self._slide}us", period="{length}us", '
            f'offset="-{length - self._slide}us", closed="left"{by},\n    )\n'
            f"    .agg({self._over_rows()})\n"
            f'    .rename({{"ts": "window_start"}})\n    {self._end()}\n)'
        )

    def framed(self) -> str:
        """A row for each key and window; `w` is the last pane of the window."""
        panes = self._panes("w", held="pl.len().cast(pl.Int64)")
        over = "" if self._key is None else f".over({self._names.removesuffix(', ')})"
        frame = rf".rolling_\1({self._overlap}, min_samples=1)"
        rolled = lambda text: f"({_COMBINED.sub(frame, text)}){over}"
        results = ", ".join(f"{a.name}={rolled(a.polars_of_panes)}" for a in self._asked)
        held = rolled('pl.col("held").sum()')
        grid = f'panes.select(w=pl.int_range(pl.col("w").min(), pl.col("w").max() + {self._overlap}))'
        if self._key is not None:
            grid = f'panes.select("{self._key}").unique()\n    .join({grid}, how="cross")'
        first = f'((pl.col("w") - {self._overlap - 1}) * {self._slide}).cast(pl.Datetime("us", "UTC"))'
        return (
            f'(lambda panes:\n    {grid}\n    .join(panes, on=[{self._names}"w"], how="left")\n'
            f'    .sort({self._names}"w")\n'
            f"    .select({self._names}held={held}, window_start={first}, {results})\n"
            f'    .filter(pl.col("held") > 0)\n    .drop("held")\n    {self._end()}\n)({panes})'
        )

    def _panes(self, name: str, **more: str) -> str:
        partials = {p: PARTIALS[p][1] for p in self._partials} | more
        listed = ", ".join(f"{p}={text}" for p, text in partials.items())
        return f"events.group_by({self._names}{name}={self._pane}).agg({listed})"

    def _end(self) -> str:
        length = self._slide * self._overlap
        return f'.with_columns(window_end=pl.col("window_start") + pl.duration(microseconds={length}))'

    def _crossed(self, pane: str, *columns: str) -> str:
        kept = ", ".join(f'"{c}"' for c in columns)
        return (
            f'.join(pl.LazyFrame({{"i": range({self._overlap})}}), how="cross")\n'
            f'    .select({self._names}{kept}, w=pl.col("{pane}") - pl.col("i"))\n'
            f'    .group_by({self._names}"w")'
        )

    def _grouped(self, source: str, results: str) -> str:
        start = f'(pl.col("w") * {self._slide}).cast(pl.Datetime("us", "UTC"))'
        return (
            f"(\n    {source}\n    .agg({results})\n    .with_columns(window_start={start})\n"
            f'    {self._end()}\n    .drop("w")\n)'
        )

    def _over_rows(self) -> str:
        return ", ".join(f"{a.name}={a.polars}" for a in self._asked)
