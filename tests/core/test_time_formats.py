"""Formats of times: a column has the values of the definition, which are those of Python."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tidemill.core.errors import UserError
from tidemill.core.time_formats import (
    format_time,
    format_times,
    parse_time,
    parse_times,
    time_format,
)
from tidemill.core.types import TIMESTAMP, to_arrow

FORMATS = [
    "%Y-%m-%d", "%d.%m.%Y %H:%M:%S", "%m/%d/%y %I:%M %p", "%b %d, %Y  %T.%f", "%A, %d %B %Y %R %z", "%Y%m%d",
    "%Y %j", "%s", "%Y-%m", "%F at 100%% of %H h", "%D", "(%a) %Y.%m.%d",
]  # fmt: skip
ZONES = ["UTC", "Europe/Berlin", "America/St_Johns", "Africa/Monrovia", "Pacific/Apia"]
INSTANTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(
    lambda at: (at - datetime(1970, 1, 1)) // timedelta(microseconds=1)
)


def ticks(array: pa.Array) -> list[int | None]:
    found: list[int | None] = array.cast(pa.int64()).to_pylist()
    return found


@given(st.lists(st.one_of(INSTANTS, st.integers(-(1 << 63), (1 << 63) - 1)), min_size=1, max_size=5),
       st.sampled_from(FORMATS), st.sampled_from(ZONES))  # fmt: skip
@examples(60)
def test_a_column_is_written_as_each_value_is(values: list[int], text: str, tz: str) -> None:
    written = format_times(
        pa.array(values).cast(to_arrow(TIMESTAMP)), time_format(text, "s", parsed=False), tz
    )
    assert written.to_pylist() == [
        format_time(v, time_format(text, "s", parsed=False), tz) for v in values
    ]


@given(st.lists(INSTANTS, min_size=1, max_size=4), st.sampled_from(FORMATS), st.sampled_from(ZONES),
       st.sampled_from([" ", "0", "x", "29", "60", ""]), st.integers(0, 12))  # fmt: skip
@examples(60)
def test_a_column_is_read_as_each_value_is(
    values: list[int], text: str, tz: str, put: str, at: int
) -> None:
    how = time_format(text, "s", parsed=True)
    texts = [t for v in values if (t := format_time(v, how, tz)) is not None]
    texts += [t[:at] + put + t[at + len(put) :] for t in texts] + ["", "30.02.2026 00:00:00"]
    assert ticks(parse_times(pa.array(texts), [how], tz)) == [parse_time(t, how, tz) for t in texts]


@given(
    INSTANTS,
    st.sampled_from(["%Y-%m-%d %H:%M:%S.%f", "%d %b %Y %I:%M:%S %p %f", "%Y %j %H %M %S %f"]),
)
@settings(max_examples=40)
def test_python_agrees(value: int, text: str) -> None:
    at = datetime(1970, 1, 1) + timedelta(microseconds=value)
    shown = at.strftime(text.replace("%Y", f"{at.year:04}"))
    assert format_time(value, time_format(text, "s", parsed=False), "UTC") == shown
    assert parse_time(shown, time_format(text, "s", parsed=True), "UTC") == value
    assert datetime.strptime(shown, text) == at


@pytest.mark.parametrize(("text", "written", "iso"), [
    ("%m/%d/%Y %H:%M", "7/4/2026 9:05", "2026-07-04T09:05"),
    ("%d-%B-%y", "4-july-26", "2026-07-04T00:00"),
    ("%d-%b-%y", "4-SEP-69", "1969-09-04T00:00"),
    ("%Y-%m-%d %I %p", "2026-07-04 12 am", "2026-07-04T00:00"),
    ("%Y-%m-%dT%H:%M:%S%z", "2026-07-04T09:05:00-02:30", "2026-07-04T11:35"),
    ("%Y-%m-%d %H:%M", "2026-07-04   09:05", "2026-07-04T09:05"),
    ("%S.%f %M %H %d %m %Y", "1.123456789 5 9 4 7 2026", "2026-07-04T09:05:01.123456"),
    ("%Y-%m-%d", "2026-02-30", None), ("%Y-%m-%d", "2026-7-4 ", None), ("%Y-%j", "2026-366", None),
    ("%Y-%m-%d", "0000-01-01", None), ("%H:%M:%S %Y", "23:59:60 2026", None), ("%Y", "٢٠٢٦", None),
    ("%Y-%m-%d", "2026-07-04\n", None), ("%d-%b-%Y", "4-\u017fep-2026", None),
])  # fmt: skip
def test_what_fits_and_what_does_not(text: str, written: str, iso: str | None) -> None:
    how = time_format(text, "s", parsed=True)
    at = None if iso is None else datetime.fromisoformat(iso).replace(tzinfo=timezone.utc)
    wanted = (
        None
        if at is None
        else (at - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)
    )
    assert parse_time(written, how, "UTC") == wanted
    assert ticks(parse_times(pa.array([written, None]), [how], "UTC")) == [wanted, None]


def test_a_time_that_a_clock_skips_is_none_and_one_that_it_shows_twice_is_the_earlier() -> None:
    how = time_format("%Y-%m-%d %H:%M", "s", parsed=True)
    texts = ["2026-03-29 02:30", "2026-10-25 02:30"]
    read = parse_times(pa.array(texts), [how], "Europe/Berlin")
    assert ticks(read) == [parse_time(t, how, "Europe/Berlin") for t in texts]
    assert [None if t is None else t.isoformat() for t in read.to_pylist()] == [
        None,
        "2026-10-25T00:30:00+00:00",
    ]


@pytest.mark.parametrize(("text", "said"), [
    ("", "a format such as"), ("%Q %Y", "'%Q' in '%Q %Y'"), ("%Y %", "'%' in"), ("%m/%d", "no year"),
    ("%Y %Y", "%Y twice"), ("%Y %I:%M", "%I without %p"), ("%Y %H %p", "%p without %I"),
    ("%Y %d", "day without a month"),
    ("%Y-%m %b", "a year or a month twice"), ("%Y %j %m", "%j beside"), ("%s %Y", "%s beside"),
])  # fmt: skip
def test_formats_that_say_no_time_are_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        time_format(text, "strptime", parsed=True)


@pytest.mark.parametrize("text", [["%Y"], 7, None, ""])
def test_what_is_no_text_is_refused(text: Any) -> None:
    with pytest.raises(UserError, match=r"expected a format such as '%m/%d/%Y %H:%M', got"):
        time_format(text, "strptime", parsed=True)
