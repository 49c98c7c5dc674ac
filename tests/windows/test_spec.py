"""Constructors of windows: what they read, what they refuse, how they print."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from tidemill.core.errors import UserError
from tidemill.core.time import Domain, duration
from tidemill.windows.spec import (
    Landmark,
    PerEvent,
    Rows,
    Session,
    Sliding,
    Window,
    hopping,
    landmark,
    per_event,
    rows,
    session,
    tumbling,
)

HOUR, MINUTE = 3_600_000_000, 60_000_000


@pytest.mark.parametrize("size", ["1h", "60 minutes", timedelta(hours=1), duration("1h")])
def test_durations_have_several_spellings(size: Any) -> None:
    assert tumbling(size) == tumbling("1h")
    assert hopping(size, every="1m") == hopping("1h", "1m")
    assert landmark(size).slide == per_event(size).range.ticks == session(size).gap.ticks == HOUR


@pytest.mark.parametrize(
    "origin",
    [
        "2026-01-01",
        "2026-01-01T00:00Z",
        datetime(2026, 1, 1),
        datetime(2026, 1, 1, tzinfo=timezone.utc),
    ],
)
def test_origins_have_several_spellings(origin: Any) -> None:
    assert tumbling("1h", origin=origin).origin == 1_767_225_600_000_000
    assert tumbling("1h", origin=origin).start is None
    assert tumbling("1h", start=origin).start == 1_767_225_600_000_000


def test_grid_windows_in_ticks() -> None:
    S = hopping("1h", every="25m")
    assert (S.length, S.slide, S.pane, S.origin, S.start) == (
        HOUR,
        25 * MINUTE,
        5 * MINUTE,
        0,
        None,
    )
    assert (tumbling(7).length, tumbling(7).slide, tumbling(7).pane) == (7, 7, 7)
    assert (landmark(7).length, landmark(7).pane, landmark(7).start) == (None, 7, 0)
    assert (rows(10, 4).length, rows(10, 4).slide, rows(10, 4).pane) == (10, 4, 2)
    assert rows(10, 4).start == 0 and rows(10, 4).origin == 0


def test_kinds_of_time() -> None:
    assert hopping("1h", "1m").domain is Domain.CLOCK
    assert all(
        S.domain is Domain.LOGICAL
        for S in (hopping(3, 2), landmark(2), per_event(3), session(3), tumbling(2))
    )
    assert rows(3, 2).domain is None


def test_partitions() -> None:
    assert rows(3, 2).partition is None
    assert rows(3, 2, partition_by="k").partition == ("k",)
    assert per_event(3, partition_by=["k", "j"]).partition == ("k", "j")
    assert per_event(3, partition_by=[]).partition == ()
    assert session(3, partition_by=("k",)).partition == ("k",)
    assert tumbling(3).partition is landmark(3).partition is None


def test_specifications_are_values() -> None:
    made = [tumbling(3), hopping(3, 2), landmark(2), rows(3, 2), per_event(3), session(3)]
    assert [type(S) for S in made] == [Sliding, Sliding, Landmark, Rows, PerEvent, Session]
    assert len({*made, tumbling(3), hopping(3, 2), session(3)}) == len(made)
    assert tumbling(3) == hopping(3, 3)
    assert tumbling(3) != tumbling("3us")
    with pytest.raises(AttributeError):
        tumbling(3).on = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("S", "text"),
    [
        (tumbling("5m"), "tumbling(5m)"),
        (tumbling(5), "tumbling(5)"),
        (hopping("90m", "1m"), "hopping(1h30m, every=1m)"),
        (hopping("1m", "1h"), "hopping(1m, every=1h)"),
        (hopping("1h", "1h"), "tumbling(1h)"),
        (hopping(3, 2, origin=4), "hopping(3, every=2, origin=4)"),
        (
            tumbling("1h", origin="2026-01-01", on="at", fill_empty=True),
            "tumbling(1h, origin=2026-01-01T00:00:00+00:00, on='at', fill_empty=True)",
        ),
        (landmark(5), "landmark(5, start=0)"),
        (landmark("1d"), "landmark(1d, start=1970-01-01T00:00:00+00:00)"),
        (rows(10, 2), "rows(10, every=2)"),
        (
            rows(10, 2, partition_by="k", order_by="seq"),
            "rows(10, every=2, partition_by=['k'], order_by='seq')",
        ),
        (per_event("5m"), "per_event(5m)"),
        (per_event(5, every=3), "per_event(5, every=3)"),
        (per_event(5, every=3, by="rank"), "per_event(5, every=3, by='rank')"),
        (per_event(5, partition_by=["k", "j"]), "per_event(5, partition_by=['k', 'j'])"),
        (session("30m"), "session(30m)"),
        (session(5, partition_by="k", on="at"), "session(5, partition_by=['k'], on='at')"),
    ],
)
def test_str(S: Window, text: str) -> None:
    assert str(S) == text


DURATIONS: dict[str, Callable[[Any], Window]] = {
    "tumbling: size": tumbling,
    "hopping: range": lambda value: hopping(value, every="1m"),
    "hopping: every": lambda value: hopping("1m", every=value),
    "landmark: every": landmark,
    "per_event: range": per_event,
    "session: gap": session,
}
COUNTS: dict[str, Callable[[Any], Window]] = {
    "rows: range": lambda value: rows(value, 1),
    "rows: every": lambda value: rows(1, value),
    "per_event: every": lambda value: per_event("1m", every=value),
}


@pytest.mark.parametrize("where", DURATIONS)
@pytest.mark.parametrize("value", ["0s", "-5m", timedelta(0), timedelta(seconds=-1), 0, -1])
def test_durations_must_be_positive(where: str, value: Any) -> None:
    step, name = where.split(": ")
    with pytest.raises(UserError) as caught:
        DURATIONS[where](value)
    assert str(caught.value) == f"{step}: expected {name} greater than zero, got {value!r}"


@pytest.mark.parametrize("where", DURATIONS)
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("1 month", "expected a duration of fixed length, got '1 month' — months and years vary"),
        ("2y", "expected a duration of fixed length, got '2y'"),
        ("soon", "expected a duration such as '1h30m'.*, got 'soon'"),
        ("", "expected a duration such as"),
        ("5", "expected a duration such as .*, got '5'"),
        ("1h nonsense", "expected a duration such as"),
        (math.nan, r"expected (a duration: .*, got nan|numbers only).*"),
        (True, r"expected a duration: .*, got True \(bool\)"),
        (None, r"expected a duration: .*, got None \(NoneType\)"),
        (datetime(2026, 1, 1), r"expected a duration: .*\(datetime\)"),
    ],
)
def test_what_is_no_duration(where: str, value: Any, message: str) -> None:
    step = where.split(": ")[0]
    with pytest.raises(UserError, match=f"^{step}: {message}"):
        DURATIONS[where](value)


@pytest.mark.parametrize("make", [tumbling, landmark, per_event, session], ids=lambda m: m.__name__)
def test_durations_are_not_beyond_counting(make: Any) -> None:
    make(1 << 61)
    with pytest.raises(UserError, match=rf"^{make.__name__}: expected .* up to 2\*\*61 ticks"):
        make((1 << 61) + 1)


@pytest.mark.parametrize("where", COUNTS)
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "greater than zero"),
        (-3, "greater than zero"),
        (1.0, r"as a number of rows \(int\)"),
        (True, r"as a number of rows \(int\)"),
        (None, r"as a number of rows \(int\)"),
        ((1 << 61) + 1, r"up to 2\*\*61"),
    ],
)
def test_what_is_no_number_of_rows(where: str, value: Any, expected: str) -> None:
    step, name = where.split(": ")
    with pytest.raises(UserError, match=f"^{step}: expected {name} {expected}, got {value!r}$"):
        COUNTS[where](value)


@pytest.mark.parametrize("where", [where for where in COUNTS if where != "rows: every"])
def test_text_is_no_number_of_rows(where: str) -> None:
    """But as the slide of `rows` it is a duration."""
    step, name = where.split(": ")
    with pytest.raises(UserError, match=f"^{step}: expected {name} as a number of rows"):
        COUNTS[where]("1h")


@pytest.mark.parametrize("make", [lambda: hopping("1h", every=10), lambda: hopping(10, every="1h")])
def test_clock_and_logical_time_never_mix(make: Any) -> None:
    with pytest.raises(
        UserError, match="hopping: expected range and every in one kind of time"
    ) as caught:
        make()
    assert "1h in clock time" in str(caught.value) and "10 in logical time" in str(caught.value)


@pytest.mark.parametrize(("make", "option"), [(tumbling, "origin"), (tumbling, "start"), (landmark, "start")])
@pytest.mark.parametrize("when", ["2026-01-01", datetime(2026, 1, 1)])
def test_origin_and_start_are_of_the_same_kind_of_time(make: Any, option: str, when: Any) -> None:
    with pytest.raises(
        UserError, match=f"{make.__name__}: expected {option} as an int, on logical time"
    ):
        make(10, **{option: when})
    make("1h", **{option: 0})  # ticks fit both


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("noon", "an ISO instant"),
        (1.5, "numbers only, as one of them is a float"),
        (True, "an instant"),
        ((1 << 61) + 1, r"origin within 2\*\*61 ticks of zero"),
        (1_767_225_600_000_000_000, "origin in the years 1 to 9999"),
    ],
)
def test_what_is_no_origin(origin: Any, expected: str) -> None:
    with pytest.raises(UserError, match=f"tumbling: expected {expected}.*, got "):
        tumbling("1h", origin=origin)


@pytest.mark.parametrize("make", [
    lambda value: rows(1, 1, partition_by=value),
    lambda value: per_event(1, partition_by=value),
    lambda value: session(1, partition_by=value),
], ids=["rows", "per_event", "session"])  # fmt: skip
@pytest.mark.parametrize("value", [5, [1], ["k", None], {"k": 1}])
def test_what_is_no_partition(make: Any, value: Any) -> None:
    with pytest.raises(UserError, match="expected partition_by as column names, got "):
        make(value)


@pytest.mark.parametrize("make", [
    lambda: tumbling(1, on=5), lambda: session(1, on=["ts"]), lambda: rows(1, 1, order_by=5),
    lambda: per_event(1, order_by=["seq"]),
])  # fmt: skip
def test_what_is_no_column(make: Any) -> None:
    with pytest.raises(UserError, match=r"expected (on|order_by) as a column name( or an expression)?, got "):
        make()


def test_per_event_slides_by_arrival_or_rank() -> None:
    with pytest.raises(
        UserError, match="per_event: expected by='arrival' or by='rank', got 'size'"
    ):
        per_event("1m", every=2, by="size")
