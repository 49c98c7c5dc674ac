"""Window specifications: what a window is, not how it is evaluated (paper 003, 3.2).

| constructor | range over | slides over | class |
|---|---|---|---|
| `tumbling(size)` | attribute | attribute | CF |
| `hopping(range, every=)` | attribute | attribute | CF |
| `hopping(range, every=, on=, slide_on=)` | attribute | another attribute | FCU |
| `landmark(every, start=)` | from its start | attribute | CF |
| `calendar(unit, every=, tz=)` | attribute | attribute | CF |
| `rows(range, every, partition_by=[])` | row number | row number | CF |
| `rows(range, every)` | row number in partition | same | FCF |
| `rows(range, every, order_by=)` | row number in that order | same | FCU |
| `rows(range, every=, slide_on=)` | row number by the attribute | attribute | FCU |
| `per_event(range)` | attribute | every row | FCB |
| `per_event(range, every=n)` | attribute | each n-th arrival | FCB |
| `per_event(range, every=n, by="rank")` | attribute | each n-th in attribute order | FCU |
| `session(gap)` | attribute | — | FCA |

The class says what must be known of other rows to tell the windows of a row (sections 4 and 6): nothing
(CF, context free), rows that came before (FCF, forward-context free), or rows still to come (FCA,
forward-context aware). Of the last, some have a range of window ids that is known when a row arrives
(FCB, bounded); others do not (FCU, unbounded).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from fractions import Fraction
from typing import Any, ClassVar, Union

from tidemill.core.errors import UserError
from tidemill.core.schema import users_part
from tidemill.core.time import (
    FARTHEST,
    Domain,
    Duration,
    DurationLike,
    InstantLike,
    duration,
    format_duration,
    instant,
    instant_domain,
    to_datetime,
)
from tidemill.core.zones import UTC, known_zone
from tidemill.expr.fluent import Expr, computed
from tidemill.expr.nodes import Column, Node, columns_of
from tidemill.windows.decimals import common_step, decimal, is_real

Attribute = Union[str, Expr, Callable[[Any], Any], None]
"""A windowing attribute: the name of a column, or an expression."""
Length = Union[DurationLike, float]
Place = Union[InstantLike, timedelta, float]
"""Where windows are aligned or begin: a value of the attribute."""
PartitionBy = Union[str, Sequence[str], None]

_WEEK = duration("1w").ticks
_FIRST, _LAST = instant(datetime.min), instant(datetime.max)


@dataclass(frozen=True, repr=False)
class Window:
    """Base of all specifications. `on` is the windowing attribute: the stream's time by default."""

    on: str | Node | None = field(default=None, kw_only=True)
    fill_empty: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        name = getattr(self, "order_by", None)
        if name is not None and not isinstance(name, str):
            raise UserError(str(self), expected="order_by as a column name", got=repr(name))

    def __repr__(self) -> str:
        return f"{self}: {self.note}" if self.note else str(self)

    @property
    def note(self) -> str:
        """What people may not expect of these windows; mostly nothing."""
        return ""

    @property
    def context(self) -> str:
        """Class by the context that `wids` needs (paper 003, section 4): CF, FCF, FCB, FCU, FCA."""
        raise NotImplementedError

    @property
    def domain(self) -> Domain | None:
        """The kind of time its durations are written in; `None` where it counts rows only."""
        raise NotImplementedError

    @property
    def partition(self) -> tuple[str, ...] | None:
        """Columns that split the stream before windows are cut; `None` where none were given."""
        return None

    @property
    def counts_arrivals(self) -> bool:
        """Whether its windows depend on the order in which rows arrive."""
        return False

    @property
    def follows_rows(self) -> bool:
        """Whether its windows depend on the rows of their partition; others are the same for all streams."""
        return True

    @property
    def until_end(self) -> bool:
        """Whether every key has windows until the last row of the whole stream."""
        return self.fill_empty


@dataclass(frozen=True, repr=False)
class GridWindow(Window):
    """Windows whose ends lie on a regular grid, of the attribute or of row numbers.

    Window `w` ends at `origin + (w + 1) * slide`. Lengths are in ticks of the attribute.
    """

    origin: int = field(default=0, kw_only=True)
    """Aligns the grid, and nothing else: windows lie on both sides of it."""
    start: int | None = field(default=None, kw_only=True)
    """Bounds the stream below: rows before it are in no window, and windows are cut off there."""
    step: Fraction | None = field(default=None, kw_only=True)
    """Over floats, what a tick stands for; `None` over everything else."""
    grain: Fraction | None = field(default=None, kw_only=True)
    """The same, in a plan, where the attribute and the bounds are ticks already (`real_grid.on_ticks`)."""
    placed: type | None = field(default=None, kw_only=True, compare=False)
    """What `origin` or `start` was given as: an instant (`datetime`), a duration (`timedelta`), a number."""

    @property
    def length(self) -> int | None:
        """Ticks a window reaches back from its end; `None` when it reaches to the start."""
        raise NotImplementedError

    @property
    def slide(self) -> int:
        raise NotImplementedError

    @property
    def follows_rows(self) -> bool:
        return False

    @property
    def until_end(self) -> bool:
        return self.fill_empty or self.length is None

    @property
    def pane(self) -> int:
        """The smallest stretch that all windows share: gcd of range and slide (section 5.2.3)."""
        return self.slide if self.length is None else math.gcd(self.length, self.slide)


@dataclass(frozen=True, repr=False)
class Sliding(GridWindow):
    """RANGE and SLIDE over the same attribute; tumbling when they are equal.

    A slide greater than the range is allowed: it samples, and rows between windows are in none.
    """

    range: Duration
    every: Duration
    context: ClassVar[str] = "CF"

    @property
    def domain(self) -> Domain:
        return self.range.domain

    @property
    def length(self) -> int:
        return self.range.ticks

    @property
    def slide(self) -> int:
        return self.every.ticks

    def __str__(self) -> str:
        length, slide = _shown(self, self.range), _shown(self, self.every)
        if self.range == self.every:
            return f"tumbling({length}{_options(self)})"
        return f"hopping({length}, every={slide}{_options(self)})"

    @property
    def note(self) -> str:
        """Where whole weeks begin, if nothing says so."""
        told = self.on is not None or self.placed is not None
        if told or self.domain is not Domain.CLOCK or self.slide % _WEEK:
            return ""
        weeks = "tm.calendar('week')" if self.length == self.slide == _WEEK else "origin='1970-01-05'"
        return f"weeks from Thursday to Thursday in UTC, as 1970-01-01 was one; {weeks} has those from Monday"


@dataclass(frozen=True, repr=False)
class Landmark(GridWindow):
    """Windows that all begin at the start; one ends after each slide."""

    every: Duration
    context: ClassVar[str] = "CF"

    @property
    def domain(self) -> Domain:
        return self.every.domain

    @property
    def length(self) -> None:
        return None

    @property
    def slide(self) -> int:
        return self.every.ticks

    def __str__(self) -> str:
        return f"landmark({_shown(self, self.every)}{_options(self)})"


@dataclass(frozen=True, repr=False)
class Calendar(Window):
    """Days, weeks, months, quarters or years of a time zone, or `every` so many of them.

    Window `w` has the units `[w * every, (w + 1) * every)`, which are numbered from the one with 1970-01-01
    (the week of Monday 1969-12-29). A unit begins at the first instant at which the clock of the zone shows
    its first midnight or a later time, and ends where the next begins (`windows/calendar_units.py`).
    """

    unit: str
    every: int = 1
    tz: str = UTC
    context: ClassVar[str] = "CF"

    @property
    def domain(self) -> Domain:
        return Domain.CLOCK

    @property
    def follows_rows(self) -> bool:
        return False

    @property
    def cut(self) -> Calendar:
        """The same windows without the options that do not say where they lie."""
        return Calendar(self.unit, self.every, self.tz)

    def __str__(self) -> str:
        every = f", every={self.every}" if self.every != 1 else ""
        return f"calendar({self.unit!r}{every}, tz={self.tz!r}{_options(self)})"


@dataclass(frozen=True, repr=False)
class Rows(GridWindow):
    """RANGE and SLIDE in rows; numbered from 0 in order of arrival, or of `order_by`."""

    range: int
    every: int
    partition_by: tuple[str, ...] | None = None
    order_by: str | None = None

    @property
    def context(self) -> str:
        if self.order_by:  # a later row may come before this one in that order
            return "FCU"
        return "FCF" if self.partition_by else "CF"

    @property
    def domain(self) -> None:
        return None

    @property
    def partition(self) -> tuple[str, ...] | None:
        return self.partition_by

    @property
    def length(self) -> int:
        return self.range

    @property
    def slide(self) -> int:
        return self.every

    @property
    def counts_arrivals(self) -> bool:
        return True

    @property
    def follows_rows(self) -> bool:
        return True

    def __str__(self) -> str:
        return f"rows({self.range}, every={self.every}{_options(self)})"


@dataclass(frozen=True, repr=False)
class LastRows(Window):
    """The last rows below each multiple of a slide: RANGE in rows, SLIDE over an attribute (paper 003, 3.2).

    Window `w` has the last `range` rows, in order of the attribute, below `origin + (w + 1) * every`. Ties
    are broken by the other columns, so the order of arrival never matters. It starts at its first row.
    """

    range: int
    every: Duration
    partition_by: tuple[str, ...] | None = None
    origin: int = field(default=0, kw_only=True)
    context: ClassVar[str] = "FCU"

    @property
    def domain(self) -> Domain:
        return self.every.domain

    @property
    def partition(self) -> tuple[str, ...] | None:
        return self.partition_by

    @property
    def until_end(self) -> bool:
        return True

    def __str__(self) -> str:
        return f"rows({self.range}, every={self.every}{_options(self)})"


@dataclass(frozen=True, repr=False)
class LastRange(Window):
    """The last range of one attribute at each multiple of a slide over another (paper 003, 3.2).

    `on` is the attribute of the range (RATTR), `slide_on` the one that windows slide over (SATTR). Window `w`
    sees the rows whose slide attribute is below `origin + (w + 1) * every`. Its range ends at the greatest
    range attribute `r` of these: it has those of them in `(r - range, r]`.
    """

    range: Duration
    every: Duration
    slide_on: str | Node
    partition_by: tuple[str, ...] | None = None
    origin: int = field(default=0, kw_only=True)
    placed: type | None = field(default=None, kw_only=True, compare=False)
    """What `origin` was given as: see `GridWindow`."""
    context: ClassVar[str] = "FCU"

    @property
    def domain(self) -> Domain:
        return self.every.domain

    @property
    def partition(self) -> tuple[str, ...] | None:
        return self.partition_by

    @property
    def until_end(self) -> bool:
        return True

    def __str__(self) -> str:
        return f"hopping({self.range}, every={self.every}{_options(self)})"


@dataclass(frozen=True, repr=False)
class PerEvent(Window):
    """A window `(w - range, w]` ends at each row, or at each n-th by arrival or by rank."""

    range: Duration
    every: int = 1
    by: str = "arrival"
    partition_by: tuple[str, ...] | None = None
    order_by: str | None = None
    keep: bool = field(default=False, kw_only=True)
    """Whether the result is each row with its columns, and the aggregates of its window beside them."""

    @property
    def context(self) -> str:
        ranked = self.by == "rank" or (self.order_by is not None and self.every > 1)
        return "FCU" if ranked else "FCB"

    @property
    def domain(self) -> Domain:
        return self.range.domain

    @property
    def partition(self) -> tuple[str, ...] | None:
        return self.partition_by

    @property
    def counts_arrivals(self) -> bool:
        return self.every > 1 and self.by == "arrival"

    def __str__(self) -> str:
        every = f", every={self.every}" if self.every != 1 else ""
        by = f", by={self.by!r}" if self.by != "arrival" else ""
        return f"per_event({self.range}{every}{by}{_options(self)}{', keep=True' if self.keep else ''})"


@dataclass(frozen=True, repr=False)
class Session(Window):
    """Runs of rows with gaps below `gap`; from the first instant to the last plus `gap`."""

    gap: Duration
    partition_by: tuple[str, ...] | None = None
    context: ClassVar[str] = "FCA"

    @property
    def domain(self) -> Domain:
        return self.gap.domain

    @property
    def partition(self) -> tuple[str, ...] | None:
        return self.partition_by

    def __str__(self) -> str:
        return f"session({self.gap}{_options(self)})"


def tumbling(
    size: Length,
    *,
    origin: Place | None = None,
    start: Place | None = None,
    on: Attribute = None,
    fill_empty: bool = False,
) -> Sliding:
    """Windows that follow one another: `[origin + w*size, origin + (w+1)*size)`; see `hopping`.

    >>> print(tumbling("5m"))
    tumbling(5m)
    """
    return _sliding("tumbling", size, size, origin, start, on=on, fill_empty=fill_empty)


def hopping(
    range: Length,
    every: Length,
    *,
    origin: Place | None = None,
    start: Place | None = None,
    on: Attribute = None,
    slide_on: Attribute = None,
    partition_by: PartitionBy = None,
    fill_empty: bool = False,
) -> Sliding | LastRange:
    """Windows of length `range`, one of which ends at each multiple of `every`.

    `origin` aligns them (the epoch by default): windows end at multiples of `every` before and after
    it. `start` bounds the stream: rows before it are in no window, and the first windows are cut off
    there. `query.left_out()` has these rows.

    `on` is the attribute that windows are over, as the name of a column or as an expression: ints, instants,
    durations or floats. Over floats, lengths are numbers, and a row is in the windows with
    `window_start <= x < window_end`. Null, NaN and infinite floats are in no window; `query.left_out()` has
    these rows, too.

    `slide_on` is another attribute that windows slide over, such as the time of arrival. At each multiple of
    `every` of it, a window has the last `range` of `on` among the rows that are there: those with `slide_on`
    below the multiple. The range ends at the greatest value of `on` among them, which is in it. Such windows
    follow the rows, so they are by key where the query groups; `partition_by` says otherwise.

    >>> print(hopping("1h", every="10m", on="event_time", slide_on="arrival_time"))
    hopping(1h, every=10m, on='event_time', slide_on='arrival_time')
    >>> print(hopping(0.5, every=0.1, on=lambda e: e.distance / e.speed))
    hopping(0.5, every=0.1, on=(col.distance / col.speed))
    >>> hopping("1h", every="10m").pane // 60_000_000
    10
    """
    if slide_on is None and partition_by is None:
        return _sliding("hopping", range, every, origin, start, on=on, fill_empty=fill_empty)
    if slide_on is None:
        raise UserError("hopping", expected="partition_by with slide_on only", got=repr(partition_by))
    if start is not None or fill_empty:
        raise UserError("hopping", expected="neither start nor fill_empty", got=f"slide_on={slide_on!r}")
    length, slide = _positive("hopping", "range", range), _positive("hopping", "every", every)  # type: ignore[arg-type]
    placed, first = _place("hopping", "origin", 0 if origin is None else origin, slide.domain)
    over, moves = _attribute("hopping", on), _attribute("hopping", slide_on)
    assert moves is not None
    if over == moves:
        raise UserError("hopping", expected="another attribute than on=", got=f"slide_on={slide_on!r}",
                        hint="leave slide_on= out")  # fmt: skip
    return LastRange(
        length, slide, moves, _columns("hopping", partition_by), origin=first,
        placed=None if placed is int else placed, on=over,
    )  # fmt: skip


def landmark(
    every: Length,
    *,
    start: Place = 0,
    on: Attribute = None,
    fill_empty: bool = False,
) -> Landmark:
    """Windows that all begin at `start` (the epoch by default) and end each `every` after it.

    Rows before the start are in no window; `query.left_out()` has them.
    """
    grid = _grid("landmark", {"every": every}, {"start": start})
    first = grid.places["start"]
    return Landmark(
        grid.lengths["every"], origin=first, start=first, on=_attribute("landmark", on),
        fill_empty=fill_empty, step=grid.step, placed=grid.placed,
    )  # fmt: skip


CALENDAR_UNITS = ("day", "week", "month", "quarter", "year")


def calendar(
    unit: str,
    every: int = 1,
    *,
    tz: str | tzinfo = UTC,
    on: Attribute = None,
    fill_empty: bool = False,
) -> Calendar:
    """Days, weeks, months, quarters or years of a time zone, as its clocks have them; clock time only.

    A day lasts 23 or 25 hours where daylight saving begins or ends. A unit begins when the clock first
    shows its midnight or a later time: where there is no midnight, with the first time after it; where the
    clock is set back over midnight, with the first of both. A day that a zone left out has no window. Weeks
    begin on Monday.

    `every` joins so many units to a window. Units are numbered from the one with 1970-01-01 (for weeks, the
    one of Monday 1969-12-29), and window `w` has the units from `w * every` on.

    >>> print(calendar("month", tz="Europe/Berlin"))
    calendar('month', tz='Europe/Berlin')
    """
    if unit not in CALENDAR_UNITS:
        raise UserError(
            "calendar", expected=f"one of the units {list(CALENDAR_UNITS)}", got=repr(unit),
            hint=_unit_hint(unit),
        )  # fmt: skip
    count = _count("calendar", "every", every, "units")
    if count > 10_000:
        raise UserError("calendar", expected="every up to 10000 units", got=repr(every))
    zone, attribute = known_zone(tz, step="calendar"), _attribute("calendar", on)
    return Calendar(unit, count, zone, on=attribute, fill_empty=fill_empty)


def _unit_hint(unit: object) -> str:
    near = difflib.get_close_matches(str(unit).lower(), CALENDAR_UNITS, n=1)
    return f"did you mean {near[0]!r}?" if near else "for hours and less write tm.tumbling('1h')"


def rows(
    range: int,
    every: int | DurationLike,
    *,
    partition_by: PartitionBy = None,
    order_by: str | None = None,
    slide_on: Attribute = None,
    fill_empty: bool = False,
) -> Rows | LastRows:
    """Windows over row numbers: of each key where the query groups, or of each partition.

    `group_by` and `partition_by` split the stream first, and rows are numbered in each partition (the
    paper's Q4). With `partition_by=[]` windows are cut from the whole stream and grouped after that (Q2).

    Rows are numbered in order of arrival, or in that of `order_by`, whose ties are broken by the other
    columns. Spark needs `order_by`: its rows have no order of arrival. With `order_by` a later row may
    change the number of any row, so no window is complete before the end of the input; in order of time, none
    before the watermark.

    Where `every` is a duration, windows slide over time: the last rows at each multiple of it. `slide_on`
    names another attribute to slide over; with it, an int is a length of that attribute.

    >>> print(rows(100, every="1m"))
    rows(100, every=1m)
    """
    if slide_on is not None or isinstance(every, (str, timedelta, Duration)):
        if order_by is not None or fill_empty:
            raise UserError("rows", expected="neither order_by nor fill_empty", got=f"every={every!r}")
        return LastRows(
            _count("rows", "range", range), _positive("rows", "every", every),
            _columns("rows", partition_by), on=_attribute("rows", slide_on),
        )  # fmt: skip
    return Rows(
        _count("rows", "range", range),
        _count("rows", "every", every),
        _columns("rows", partition_by),
        order_by,
        start=0,
        fill_empty=fill_empty,
    )


def per_event(
    range: DurationLike,
    every: int = 1,
    *,
    by: str = "arrival",
    partition_by: PartitionBy = None,
    order_by: str | None = None,
    on: Attribute = None,
    keep: bool = False,
) -> PerEvent:
    """A window `(w - range, w]` for each row, or each n-th by arrival or by rank of the attribute.

    With `group_by`, each group makes its own windows, as in SQL's `OVER (PARTITION BY …)`;
    `partition_by=[]` lets the rows of the whole stream make them for every group. Rows of one
    attribute value make one window.

    With `keep=True` the result is each row with all of its columns, and the aggregates of its window beside
    them: `s.group_by("user").window(tm.per_event("1h", keep=True)).agg(before=tm.count())`.
    """
    if keep is not False:
        usual = {"every": (every, 1), "by": (by, "arrival"), "order_by": (order_by, None), "on": (on, None)}
        other = [f"{n}={v!r}" for n, (v, plain) in usual.items() if v is not plain and v != plain]
        if keep is not True or other:
            raise UserError(
                "per_event", expected="keep=True, and no other option than partition_by=",
                got=", ".join([f"keep={keep!r}", *other]),
                hint="each row has the window that ends at its time",
            )  # fmt: skip
    if by not in ("arrival", "rank"):
        raise UserError("per_event", expected="by='arrival' or by='rank'", got=repr(by))
    return PerEvent(
        _positive("per_event", "range", range),
        _count("per_event", "every", every),
        by,
        _columns("per_event", partition_by),
        order_by,
        on=_attribute("per_event", on),
        keep=keep,
    )


def session(
    gap: DurationLike, *, partition_by: PartitionBy = None, on: Attribute = None
) -> Session:
    """Runs of rows with gaps below `gap`. With `group_by`, each group has its own sessions."""
    length, partition = _positive("session", "gap", gap), _columns("session", partition_by)
    return Session(length, partition, on=_attribute("session", on))


def _positive(step: str, name: str, value: DurationLike) -> Duration:
    length = duration(value, step=step)
    if length.ticks <= 0:
        raise UserError(step, expected=f"{name} greater than zero", got=repr(value))
    if length.ticks > FARTHEST:
        raise UserError(step, expected=f"{name} up to 2**61 ticks", got=repr(value))
    return length


def _count(step: str, name: str, value: Any, of: str = "rows") -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UserError(step, expected=f"{name} as a number of {of} (int)", got=repr(value))
    if value <= 0:
        raise UserError(step, expected=f"{name} greater than zero", got=repr(value))
    if value > FARTHEST:
        raise UserError(step, expected=f"{name} up to 2**61", got=repr(value))
    return value


def _columns(step: str, value: PartitionBy) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not all(isinstance(n, str) for n in names):
        raise UserError(step, expected="partition_by as column names", got=repr(value))
    return tuple(names)


@dataclass(frozen=True)
class _Grid:
    """Lengths and places of a window on a grid, in ticks; all in one kind of time, or all numbers."""

    lengths: dict[str, Duration]
    places: dict[str, int]
    step: Fraction | None = None
    placed: type | None = None


def _grid(step: str, lengths: dict[str, Length], places: dict[str, Place]) -> _Grid:
    if any(map(is_real, (*lengths.values(), *places.values()))):
        return _real_grid(step, lengths, places)
    read = {name: _positive(step, name, value) for name, value in lengths.items()}  # type: ignore[arg-type]
    domains = {length.domain for length in read.values()}
    if len(domains) > 1:
        raise UserError(
            step, expected=f"{' and '.join(read)} in one kind of time",
            got=", ".join(f"{length} in {length.domain.value}" for length in read.values()),
        )  # fmt: skip
    [domain] = domains
    ticks, kinds = {}, set()
    for name, value in places.items():
        kind, ticks[name] = _place(step, name, value, domain)
        kinds.add(kind)
    if len(kinds - {int}) > 1:
        raise UserError(step, expected="origin and start of one kind", got=repr(places))
    return _Grid(read, ticks, placed=next(iter(kinds - {int}), None))


def _real_grid(step: str, lengths: dict[str, Any], places: dict[str, Any]) -> _Grid:
    numbers = {name: decimal(value, step=step) for name, value in (lengths | places).items()}
    for name in lengths:
        if numbers[name] <= 0:
            raise UserError(step, expected=f"{name} greater than zero", got=repr(lengths[name]))
    unit = common_step(list(numbers.values()), step=step)
    ticks = {name: int(number / unit) for name, number in numbers.items()}
    return _Grid(
        {name: Duration(ticks[name], Domain.REAL) for name in lengths},
        {name: ticks[name] for name in places}, unit, float,
    )  # fmt: skip


def _sliding(
    step: str, range: Length, every: Length, origin: Place | None, start: Place | None, *, on: Attribute,
    fill_empty: bool,
) -> Sliding:  # fmt: skip
    first = "size" if step == "tumbling" else "range"
    lengths: dict[str, Length] = {first: range} if step == "tumbling" else {first: range, "every": every}
    places: dict[str, Place] = {"origin": 0 if origin is None else origin}
    if start is not None:
        places["start"] = start
    grid = _grid(step, lengths, places)
    length = grid.lengths[first]
    return Sliding(
        length, grid.lengths.get("every", length), origin=grid.places["origin"],
        start=grid.places.get("start"), on=_attribute(step, on), fill_empty=fill_empty, step=grid.step,
        placed=grid.placed,
    )  # fmt: skip


def _place(step: str, name: str, value: Any, domain: Domain) -> tuple[type, int]:
    """Return what a place was given as, and its ticks: an instant, or a duration from zero."""
    if domain is Domain.CLOCK and isinstance(value, timedelta):
        return timedelta, duration(value, step=step).ticks
    if domain is Domain.CLOCK and isinstance(value, str):
        try:
            return timedelta, duration(value, step=step).ticks
        except UserError:  # most often it is an instant
            pass
    ticks = _instant(step, name, value, domain)
    return int if instant_domain(value) is None else datetime, ticks


def _instant(step: str, name: str, value: InstantLike, domain: Domain) -> int:
    if domain is Domain.LOGICAL and instant_domain(value) is Domain.CLOCK:
        raise UserError(
            step, expected=f"{name} as an int, on logical time", got=repr(value),
            hint="logical and clock time never mix",
        )  # fmt: skip
    ticks = instant(value, step=step)
    if not -FARTHEST <= ticks <= FARTHEST:
        raise UserError(step, expected=f"{name} within 2**61 ticks of zero", got=repr(value))
    if domain is Domain.CLOCK and not _FIRST <= ticks <= _LAST:
        raise UserError(
            step, expected=f"{name} in the years 1 to 9999", got=repr(value),
            hint="an int is microseconds since the epoch",
        )  # fmt: skip
    return ticks


def _options(window: Window) -> str:
    shown = []
    if isinstance(window, GridWindow | LastRange) and not isinstance(window, Rows):
        aligned = None if isinstance(window, Landmark) else window.origin or None
        for name, ticks in (("origin", aligned), ("start", getattr(window, "start", None))):
            if ticks is not None:
                shown.append(f"{name}={_shown_place(window, ticks)}")
    for name in ("partition_by", "order_by"):
        value = getattr(window, name, None)
        if value is not None:
            shown.append(f"{name}={list(value) if isinstance(value, tuple) else value!r}")
    over = "slide_on" if isinstance(window, LastRows) else "on"
    for name, attribute in ((over, window.on), ("slide_on", getattr(window, "slide_on", None))):
        if attribute is not None:
            plain = isinstance(attribute, str) and users_part(attribute) == attribute
            shown.append(f"{name}={repr(attribute) if plain else users_part(str(attribute))}")
    if window.fill_empty:
        shown.append("fill_empty=True")
    return "".join(f", {s}" for s in shown)


def _attribute(step: str, on: Any) -> str | Node | None:
    """Return a windowing attribute as the name of a column, or as an expression of columns."""
    if on is None or isinstance(on, str):
        return on
    node = computed(on, step=f"{step} on=") if isinstance(on, Expr) or callable(on) else None
    if node is None or not columns_of(node):
        raise UserError(step, expected="on as a column name or an expression", got=repr(on))
    return node.name if isinstance(node, Column) else node


def _shown(window: GridWindow, length: Duration) -> str:
    return str(length) if window.step is None else str(float(length.ticks * window.step))


def _shown_place(window: GridWindow | LastRange, ticks: int) -> str:
    if isinstance(window, GridWindow) and window.step is not None:
        return str(float(ticks * window.step))
    if window.domain is not Domain.CLOCK:
        return str(ticks)
    return format_duration(ticks) if window.placed is timedelta else to_datetime(ticks).isoformat()
