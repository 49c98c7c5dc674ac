"""Times as text and clocks of zones: the engines agree, also on what there is not."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

import tidemill as tm
from tests.conformance.harness import assert_same, by_reference, locally, on_spark, ran
from tidemill import col

LOG = tm.stream("log", time="t", schema={"t": "timestamp", "text": "string"})
TEXTS = [
    "7/1/2026 14:30", "07/01/2026 02:30", "2026-07-01", "3/29/2026 02:30", "10/25/2026 02:30",
    "2/30/2026 10:00",
    "13/1/2026 10:00", " 7/1/2026 14:30", "7/1/2026  14:30", "", "soon", "1/1/0001 00:00", "0001-01-01",
    "9999-12-31", None,
]  # fmt: skip
ROWS = [{"t": i * 3_600_000_000 * 2_000, "text": text} for i, text in enumerate(TEXTS)]
READ = {
    "utc": col.text.strptime("%m/%d/%Y %H:%M", "%Y-%m-%d", strict=False),
    "berlin": col.text.strptime("%m/%d/%Y %H:%M", "%Y-%m-%d", tz="Europe/Berlin", strict=False),
    "clock": col.t.local_time("America/St_Johns"),
    "hour": col.t.local_time("America/St_Johns").hour(),
    "back": col.t.local_time("Asia/Tokyo").from_local_time("Asia/Tokyo"),
    "skipped": col.t.from_local_time("Europe/Berlin", strict=False),
    "shown": col.t.strftime("%A %d %B %Y, %I:%M %p (%j) %z", "Europe/Berlin"),
    "both": tm.when(col.text.contains("/")).then(col.text).otherwise("1/1/2026 00:00").strptime(
        "%m/%d/%Y %H:%M", strict=False).strftime("%F %T"),
}  # fmt: skip


def test_the_engines_agree_on_times_of_zones_and_text(spark: Any) -> None:
    query = LOG.select(**READ)
    wanted = by_reference(query, ROWS)
    assert wanted[0]["berlin"] == wanted[0]["utc"] - 2 * 3_600_000_000
    assert [row["utc"] is None for row in wanted] == [
        False, False, False, False, False, True, True, True, False, True, True, False, False, False, True
    ]  # fmt: skip
    assert (
        wanted[3]["berlin"] is None and wanted[4]["berlin"] is not None
    )  # skipped, and shown twice
    for got in (locally(query, ROWS), on_spark(spark, query, ROWS)):
        assert_same(got, wanted, query.schema)


@pytest.mark.parametrize(("made", "said"), [
    (col.text.strptime("%Y-%m-%d"), "strptime"),
    (col.text.strptime("%Y-%m-%d", strict=False).from_local_time("Africa/Monrovia"), "from_local_time"),
])  # fmt: skip
def test_what_does_not_fit_is_an_error_everywhere(made: Any, said: str, spark: Any) -> None:
    query = LOG.select(at=made)
    rows = [{"t": 1, "text": "1972-01-07" if said == "from_local_time" else "soon"}]
    for run in (by_reference, locally, lambda q, r: on_spark(spark, q, r)):
        with pytest.raises(
            Exception, match=rf"{said}: expected .*strict=False\) to get null instead"
        ):
            run(query, rows)


def test_branches_that_no_row_takes_do_not_fail(spark: Any) -> None:
    day = (
        tm.when(col.text.starts_with("2026"))
        .then(col.text.strptime("%Y-%m-%d").strftime("%d.%m."))
        .otherwise("-")
    )
    query = LOG.select(day=day)
    rows = [{"t": 1, "text": "2026-07-01"}, {"t": 2, "text": "soon"}]
    wanted = by_reference(query, rows)
    assert [row["day"] for row in wanted] == ["01.07.", "-"]
    for got in (locally(query, rows), on_spark(spark, query, rows)):
        assert_same(got, wanted, query.schema)


def test_a_query_groups_by_the_local_day() -> None:
    log = tm.read([{"t": datetime(2026, 6, 30, 22, 30, tzinfo=timezone.utc)}], time="t")
    by_day = (
        log.group_by(day=col.t.strftime("%a %F", tz="Europe/Berlin"))
        .window(tm.tumbling("7d"))
        .agg(n=tm.count())
    )
    assert by_day.run()["day"].to_pylist() == ["Wed 2026-07-01"]
    assert "Tidemill's own" in str(by_day.explain())
    with pytest.raises(tm.UserError, match="strptime: expected at least one format"):
        col.t.strptime()
    with pytest.raises(tm.UserError, match=r"strftime: expected tz= to name a time zone"):
        col.t.strftime("%Y", tz="Berlin")
    assert ran(
        log.select(again=col.t.strftime("%s")), [{"t": datetime(1970, 1, 2, tzinfo=timezone.utc)}]
    ) == [{"t": 86_400_000_000, "again": "86400"}]
