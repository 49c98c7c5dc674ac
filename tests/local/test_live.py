"""Live queries as a user meets them: what comes back when, what is counted, what is refused."""

from __future__ import annotations

import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tidemill as tm
from tidemill import col

CLICKS = tm.stream("clicks", time="ts", schema={"ts": "timestamp", "ad": "int64", "price": "float64"})
STREAM = tm.stream("s", time="t", schema={"t": "int64", "k": "string", "x": "int64"})
SUMS = STREAM.group_by("k").window(tm.tumbling(10)).agg(x=tm.sum(col.x))


def row(t: int | None, k: str = "a", x: int = 1) -> dict[str, Any]:
    return {"t": t, "k": k, "x": x}


def test_a_window_closes_when_time_is_complete_not_at_the_next_row() -> None:
    live = SUMS.live()
    assert live.push(s=[row(3), row(9), row(12)]).num_rows == 0
    assert live.punctuate(9).num_rows == 0
    assert live.punctuate(10).to_pylist() == [{"k": "a", "window_start": 0, "window_end": 10, "x": 2}]
    assert live.punctuate(19).num_rows == 0
    assert live.flush().to_pylist() == [{"k": "a", "window_start": 10, "window_end": 20, "x": 1}]


@pytest.mark.parametrize(
    "given",
    [
        {"t": 3, "k": "a", "x": 1},
        [{"t": 3, "k": "a", "x": 1, "other": None}],
        pa.record_batch({"t": [3], "k": ["a"], "x": [1]}),
        pa.table({"x": pa.array([1], pa.int8()), "k": ["a"], "t": [3]}),
        pd.DataFrame({"t": [3], "k": ["a"], "x": [1]}),
        pl.DataFrame({"t": [3], "k": ["a"], "x": [1]}),
        iter([{"t": 3, "k": "a", "x": 1}]),
    ],
    ids=lambda given: type(given).__name__,
)
def test_rows_come_in_any_form(given: Any) -> None:
    live = SUMS.live()
    live.push(s=given)
    assert live.punctuate(10).to_pylist() == [{"k": "a", "window_start": 0, "window_end": 10, "x": 1}]


def test_a_key_that_is_complete_does_not_wait_for_others() -> None:
    live = SUMS.live()
    live.push(s=[row(3, "a"), row(4, "b"), row(5, "c")])
    assert live.punctuate(10, key={"k": "b"}).to_pydict()["k"] == ["b"]
    assert live.punctuate(10, key={"k": ["a", "c"]}).num_rows == 2
    live.push(s=[row(6, "a"), row(11, "a"), row(7, "d")])
    assert live.late().to_pylist() == [{**row(6, "a"), "late_reason": "late"}]
    assert sorted(live.flush().to_pydict()["k"]) == ["a", "d"]


def test_clock_time() -> None:
    query = CLICKS.group_by("ad").window(tm.hopping("1h", every="30m")).agg(n=tm.count())
    live = query.live(tm.Disorder(slack="10s"))
    live.push(clicks=pa.table({"ts": pa.array([0], pa.timestamp("us", "UTC")), "ad": [1], "price": [2.0]}))
    assert live.punctuate("1970-01-01T00:30Z").num_rows == 1
    assert "watermark 1970-01-01T00:30:00+00:00" in repr(live.stats())
    with pytest.raises(tm.UserError, match="slack in clock time"):
        query.live(tm.Disorder(slack=5))
    with pytest.raises(tm.UserError, match="an int, as the time of the stream is"):
        SUMS.live().punctuate("2026-01-01")


def test_what_is_late_or_has_no_time_is_counted_and_kept() -> None:
    live = SUMS.live(tm.Disorder(slack=0))
    live.push(s=[row(25)])
    live.push(s=[row(24, "late"), row(None, "null"), row(1 << 62, "far"), row(26, "good")])
    reasons = {r["k"]: r["late_reason"] for r in live.late().to_pylist()}
    assert reasons == {"late": "late", "null": "null time", "far": "far time"}
    stats = live.stats()
    assert (stats.events, stats.late) == (5, 1)
    assert (stats.inputs["s"].null_time, stats.inputs["s"].far_time) == (1, 1)
    assert "1 late, 1 null time, 1 far time" in repr(stats)
    assert live.take_late().num_rows == 3 and live.late().num_rows == 0 and live.stats().late == 1
    assert sorted(live.flush().to_pydict()["k"]) == ["a", "good", "late"], "its window was not complete"


def test_what_has_no_attribute_is_counted_and_kept(tmp_path: Path) -> None:
    stream = tm.stream("s", time="t", schema={"t": "int64", "u": "int64"})
    query = stream.window(tm.tumbling(10, on="u")).agg(n=tm.count())
    live = query.live(tm.Disorder(slack=0))
    far = 1 << 62
    live.push(s=[{"t": 25, "u": 3}, {"t": 26, "u": None}, {"t": 27, "u": far}, {"t": 28, "u": -far}])
    assert live.stats().inputs["s"].watermark == 28, "their time counts"
    live.push(s=[{"t": 2, "u": None}, {"t": None, "u": None}, {"t": 29, "u": 4}])
    kept = live.late()
    assert kept.column("late_reason").to_pylist() == [
        "null attribute", "far attribute", "far attribute", "null time", "late"
    ], "a row has one reason, and that of its time comes first"  # fmt: skip
    live.checkpoint(tmp_path / "saved")
    live.close()
    live = tm.restore(query, tmp_path / "saved", tm.Disorder(slack=0))
    live.push(s={"t": 30, "u": None})
    one = live.stats().inputs["s"]
    assert (one.events, one.null_attribute, one.far_attribute, one.null_time, one.late) == (8, 2, 2, 1, 1)
    assert "1 late, 1 null time, 2 null attribute, 2 far attribute" in repr(live.stats())
    assert live.take_late().num_rows == kept.num_rows + 1 and live.stats().inputs["s"].null_attribute == 2
    assert live.flush().to_pylist() == [{"window_start": 0, "window_end": 10, "n": 2}]


def test_a_policy_that_refuses_late_rows_takes_those_without_an_attribute() -> None:
    stream = tm.stream("s", time="t", schema={"t": "int64", "u": "int64"})
    live = stream.window(tm.session(10, on="u")).agg(n=tm.count()).live(tm.Disorder(slack=0, late="raise"))
    live.push(s=[{"t": 5, "u": None}, {"t": 6, "u": 1}])
    with pytest.raises(tm.UserError, match="no row below the watermark, 6"):
        live.push(s={"t": 5, "u": None})
    assert live.stats().inputs["s"].null_attribute == 1
    assert live.flush().num_rows == 1


def test_an_idle_input_does_not_hold_the_others_back() -> None:
    from tidemill.local.live import Live

    one, two = (tm.stream(name, time="t", schema={"t": "int64"}) for name in ("one", "two"))
    query = one.union(two).window(tm.tumbling(10)).agg(n=tm.count())
    now = [0.0]
    live = Live(query.optimized, tm.Disorder(slack=0, idle="30s"), clock=lambda: now[0])
    assert live.push(one={"t": 5}, two={"t": 1}).num_rows == 0
    now[0] = 20.0
    assert live.push(one={"t": 25}).num_rows == 0, "two is behind, but not idle yet"
    now[0] = 30.0
    assert live.advance().to_pydict() == {"window_start": [0], "window_end": [10], "n": [2]}
    assert live.stats().inputs["two"].idle and "idle" in repr(live)
    live.push(two=[{"t": 3}, {"t": 30}])
    assert live.late("two").to_pydict() == {"t": [3], "late_reason": ["late after idle"]}
    assert live.stats().inputs["two"].late_after_idle == 1
    assert not live.stats().inputs["two"].idle
    assert live.flush().to_pydict()["n"] == [1, 1]


def test_a_batch_with_a_late_row_can_be_refused_whole() -> None:
    live = SUMS.live(tm.Disorder(slack=0, late="raise"))
    live.push(s=[row(25)])
    with pytest.raises(tm.UserError, match=r"push s: expected no row below the watermark, 30, got 1 of 2"):
        live.push(s=[row(30), row(3)])
    assert live.stats().events == 1
    assert live.flush().to_pydict()["window_start"] == [20]


def test_subscribers_get_what_push_returns_and_may_fail() -> None:
    live, got = SUMS.live(tm.Disorder(slack=0)), []
    live.subscribe(got.append)
    live.subscribe(lambda table: 1 // 0)
    with pytest.warns(UserWarning, match="a subscriber failed: ZeroDivisionError"):
        first = live.push(s=[row(3), row(12)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        last = live.flush()
    assert got == [first, last]
    assert live.stats().failed_callbacks == 2 and "2 calls of subscribers failed" in repr(live)


@pytest.mark.compiled
@pytest.mark.parametrize(("form", "most"), [("arrow", 86), ("dict", 104)])
def test_a_push_of_one_event_makes_few_calls(form: str, most: int) -> None:
    """Where events come one by one, the time is that of Python: about a quarter of a microsecond for each."""
    stream = tm.stream("s", time="t", schema={"t": "int64", "k": "int64", "x": "float64"})
    live = stream.group_by("k").window(tm.tumbling(1000)).agg(x=tm.sum(col.x)).live(tm.Disorder(slack=0))
    calls = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    for t in range(5):
        event: Any = {"t": t, "k": 7, "x": 0.5}
        rows = event if form == "dict" else pa.RecordBatch.from_pylist([event])
        calls, before = 0, sys.getprofile()
        sys.setprofile(count)
        try:
            live.push(s=rows)
        finally:
            sys.setprofile(before)
    assert calls <= most


def test_a_promise_about_a_key_that_goes_back_is_refused() -> None:
    live = SUMS.live()
    live.push(s=[row(1, "a"), row(2, "b")])
    live.punctuate(10, key={"k": ["a", "b"]})
    live.punctuate(20, key={"k": "a"})
    live.punctuate(20, key={"k": "a"})  # the same again is no news, and no error
    for key in ("a", ["c", "a"]):
        with pytest.raises(tm.UserError, match=r"of s by k of at least 20, got 15.*cannot be taken"):
            live.punctuate(15, key={"k": key})
    live.punctuate(15, key={"k": ["b", "c"]})
    live.punctuate(30)
    with pytest.raises(tm.UserError, match="watermark of s by k of at least 30, got 25"):
        live.punctuate(25, key={"k": "d"})  # a promise about all keys is one about each
    assert live.stats().inputs["s"].watermark == 30
    live.push(s=row(31, "a"))
    assert live.flush().num_rows == 1, "it goes on"


def test_a_promise_about_two_columns_says_no_less_than_one_about_one_of_them() -> None:
    live = SUMS.live()
    live.punctuate(20, key={"k": "a"})
    with pytest.raises(tm.UserError, match="watermark of s by k, x of at least 20"):
        live.punctuate(10, key={"k": "a", "x": 1})
    live.punctuate(10, key={"k": "b", "x": 1})
    live.punctuate(5, key={"k": "b"})
def test_a_warning_about_a_subscriber_names_the_line_that_pushed() -> None:
    live = SUMS.live(tm.Disorder(slack=0))
    live.subscribe(lambda table: 1 // 0)
    with pytest.warns(UserWarning, match="a subscriber failed") as warned:
        live.push(s=[row(3), row(12)])
    assert warned[0].filename == __file__


def test_threads_take_turns(tmp_path: Path) -> None:
    """Feeds with a thread each push to one query, and another thread watches it."""
    live, given, failed = SUMS.live(tm.Disorder(slack=10)), [], []
    live.subscribe(given.append)

    def feed(number: int) -> None:
        try:
            for t in range(0, 120, 2):
                given_now = live.push(s=[row(5, f"{number} {t}", number), row(t // 12, str(t % 7), 1)])
                assert given_now.num_rows == 0 and live.stats().events > 0
                if t % 40 == 0:
                    live.checkpoint(tmp_path / "saved", keep=2)
        except BaseException as error:
            failed.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=feed, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failed
    live.flush()
    assert live.stats().events == 480
    found = pa.concat_tables(given).to_pydict()
    assert sum(found["x"]) == 60 * (0 + 1 + 2 + 3) + 240 and len(found["k"]) == 4 * 60 + 7


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda live: live.push(other=[]), "push: expected inputs .*s.*, got 'other'"),
        (lambda live: live.push(s=[{"t": 1}]), "push s, row 1: expected a column 'k'"),
        (lambda live: live.push(s=pa.table({"t": [1], "k": [2], "x": [3]})), "push s: expected column 'k'"),
        (lambda live: live.push(s=3), "push s: expected"),
        (lambda live: live.push(s="rows.parquet"), "push s: expected rows"),
        (lambda live: live.punctuate(5), "punctuate: expected a watermark of s of at least 10, got 5"),
        (lambda live: live.punctuate(20, input="other"), "punctuate: expected inputs"),
        (lambda live: live.punctuate(20, key={"y": 1}), "punctuate: expected key columns of s"),
        (lambda live: live.punctuate(20, key={"k": 1}), "punctuate: expected keys 'k' of string"),
        (lambda live: live.punctuate(1 << 62), "punctuate: expected a time within"),
        (lambda live: live.push(s=row(20), position=object()), "push: expected a position of numbers, text"),
        (lambda live: live.subscribe(3), "subscribe: expected a function"),
        (lambda live: live.checkpoint(None), "checkpoint: expected a path of a file or directory"),
        (lambda live: live.checkpoint(""), "checkpoint: expected a path of a file or directory"),
        (lambda live: live.checkpoint(b"saved"), "checkpoint: expected a path of a file or directory"),
        (lambda live: tm.restore(SUMS, 5), "restore: expected a path of a file or directory"),
        (lambda live: live.late("other"), "late: expected inputs"),
    ],
)
def test_what_cannot_be_is_refused_and_the_query_goes_on(call: Any, said: str) -> None:
    live = SUMS.live()
    live.push(s=row(3))
    live.punctuate(10)
    before = live.stats()
    with pytest.raises(tm.UserError, match=said):
        call(live)
    assert live.stats().inputs == before.inputs
    live.push(s=row(13))
    assert live.flush().num_rows == 1


def test_a_promise_about_keys_that_the_query_does_not_read_says_nothing() -> None:
    """As in a stream that others wrote: one query groups by the key, another one has no use for it."""
    live = STREAM.window(tm.tumbling(10)).agg(n=tm.count()).live()
    live.push(s=[row(3), row(4, "b")])
    for key in ({"k": "a"}, {"k": ["a", "b"], "x": [1, 1]}, {"k": "a", "t": 5}):
        assert live.punctuate(30, key=key).num_rows == 0
    live.push(s=row(5))
    assert live.stats().late == 0
    assert live.punctuate(10).to_pydict()["n"] == [3]
    with pytest.raises(tm.UserError, match="punctuate: expected keys 'k' of string"):
        live.punctuate(40, key={"k": 1})
    on = STREAM.window(tm.tumbling(10, on="x")).agg(n=tm.count()).live()
    on.push(s=row(3, x=4))
    assert on.punctuate(30, on="x", key={"k": "a"}).num_rows == 0
    on.push(s=row(3, x=5))
    assert on.stats().late == 0 and on.punctuate(10, on="x").to_pydict()["n"] == [2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"late": "ignore"}, "late= to be one of"),
        ({"slack": -1}, "at least 0"),
        ({"slack": "-5s"}, "at least 0"),
        ({"idle": 5}, "idle='30s'"),
        ({"late": "adjust", "consistent": True}, "consistent=True with late='drop'"),
    ],
)
def test_policies_that_mean_nothing_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(tm.UserError, match=said):
        tm.Disorder(**options)


def test_a_query_that_has_ended_says_so() -> None:
    live = SUMS.live()
    live.flush()
    with pytest.raises(tm.UserError, match=r"push: .* one that has ended — query.live\(\) starts"):
        live.push(s=row(1))
    with SUMS.live() as other:
        other.push(s=row(1))
    with pytest.raises(tm.UserError, match="one that has ended"):
        other.checkpoint("nowhere")


def test_a_query_that_fails_says_so_afterwards() -> None:
    live = SUMS.live()
    live.push(s=[row(1, x=(1 << 63) - 1), row(2, x=1)])
    with pytest.raises(tm.UserError, match="int64"):
        live.punctuate(10)
    with pytest.raises(tm.UserError, match=r"ended by UserError.*from the last checkpoint"):
        live.push(s=row(11))
    assert repr(live).startswith("ended by UserError")


# --- checkpoints ------------------------------------------------------------------------------------


def test_a_checkpoint_has_positions_counts_and_late_rows(tmp_path: Path) -> None:
    live = SUMS.live(tm.Disorder(slack=0))
    live.push(s=[row(3), row(15)], position={"offset": 7})
    live.push(s=[row(2), row(16)], position=12)
    live.checkpoint(tmp_path / "saved")
    live.push(s=[row(30)], position=13)  # this is lost
    again = tm.restore(SUMS, tmp_path / "saved", tm.Disorder(slack=0), threads=2)
    assert again.positions == {"s": 12}
    assert again.late().to_pylist() == [{**row(2), "late_reason": "late"}]
    assert again.stats().inputs == live_inputs(4, 1, 16)
    assert again.push(s=[row(30)]).to_pylist() == [{"k": "a", "window_start": 10, "window_end": 20, "x": 2}]
    assert again.stats().rows_out == 2


def live_inputs(events: int, late: int, watermark: int) -> dict[str, Any]:
    from tidemill.core.time import Domain
    from tidemill.local.live_stats import InputStats

    return {"s": InputStats(events, late, 0, 0, 0, 0, 0, 0, 0, 0, watermark, False, Domain.LOGICAL)}


def test_promises_of_keys_are_restored(tmp_path: Path) -> None:
    live = SUMS.live()
    live.push(s=[row(3, "a"), row(4, "b")])
    live.punctuate(10, key={"k": "a"})
    live.checkpoint(tmp_path / "saved")
    again = tm.restore(SUMS, tmp_path / "saved")
    again.checkpoint(tmp_path / "saved")  # and saved again
    again = tm.restore(SUMS, tmp_path / "saved")
    again.push(s=[row(5, "a"), row(5, "b")])
    assert again.late().to_pydict()["k"] == ["a"]
    assert again.flush().to_pydict() == {"k": ["b"], "window_start": [0], "window_end": [10], "x": [2]}


def test_a_checkpoint_of_another_query_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    live = SUMS.live()
    live.push(s=row(3))
    live.checkpoint(tmp_path / "saved")
    other = STREAM.group_by("k").window(tm.tumbling(20)).agg(x=tm.sum(col.x))
    with pytest.raises(tm.UserError, match=r"restore: expected a snapshot of\n.*tumbling\(20\)"):
        tm.restore(other, tmp_path / "saved")
    with pytest.raises(tm.UserError, match="got no file"):
        tm.restore(SUMS, tmp_path / "none")
    whole = (tmp_path / "saved").read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"{}", whole[:100] + b"\0" * 50 + whole[150:]):
        (tmp_path / "damaged").write_bytes(damaged)
        with pytest.raises(tm.UserError, match="restore"):
            tm.restore(SUMS, tmp_path / "damaged")
    live.punctuate(10)
    live.checkpoint(tmp_path / "saved")  # replaces the one before
    assert tm.restore(SUMS, tmp_path / "saved").stats().rows_out == 1
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_state_stays_bounded_while_keys_and_windows_move() -> None:
    live = SUMS.live(tm.Disorder(slack=20))
    sizes = []
    for at in range(60):
        times = list(range(100 * at, 100 * at + 100))
        live.push(s=pa.table({"t": times, "k": [f"k{t // 7}" for t in times], "x": times}))
        sizes.append(live.stats().open_partials)
    assert max(sizes[5:]) <= 2 * max(sizes[:5])
    assert live.stats().rows_out > 1000


def test_the_sensor_monitor_gives_what_history_gives(capsys: pytest.CaptureFixture[str]) -> None:
    from examples.live_sensors import main

    main()
    assert "300 rows live, 300 from history, the same" in capsys.readouterr().out


PLAIN = tm.stream("p", time="t", schema={"t": "int64", "k": "int64", "x": "float64"})
"""Columns of numbers only: one check of a whole batch is enough."""


@pytest.mark.parametrize(
    "columns",
    [
        {"t": [3], "k": [1], "x": [0.5]},
        {"x": [0.5], "t": [3], "other": [7], "k": [1]},
        {"x": [0.5], "k": [1], "t": [3]},
        {"t": pa.array([3], pa.int8()), "k": [1], "x": [0.5], "text": ["a"]},
    ],
    ids=["as declared", "more, in another order", "in another order", "of another type"],
)
def test_batches_of_any_schema_by_turns(columns: dict[str, Any]) -> None:
    live = PLAIN.group_by("k").window(tm.tumbling(10)).agg(x=tm.sum(col.x)).live()
    as_declared = pa.record_batch({"t": [4], "k": [1], "x": [0.25]})
    for batch in (as_declared, pa.record_batch(columns), as_declared, pa.record_batch(columns)):
        live.push(p=batch)
    assert live.punctuate(10).to_pydict()["x"] == [1.5]
    with pytest.raises(tm.UserError, match="a column 'k'"):
        live.push(p=as_declared.drop_columns(["k"]))
    with pytest.raises(tm.UserError, match="column 'k' of type int64"):
        live.push(p=pa.record_batch({"t": [3], "k": ["a"], "x": [0.5]}))
    assert live.stats().events == 4


@pytest.mark.compiled
def test_row_windows_by_key_close_from_the_partials_of_some_keys() -> None:
    """More partials than may stay without use, so that all are read now and then, and some in between."""
    s = tm.stream("s", time="t", schema={"t": "int64", "k": "int64", "v": "int64"})
    rng = np.random.default_rng(3)
    rows = pa.table({"t": np.arange(8000), "k": rng.integers(0, 400, 8000), "v": rng.integers(0, 9, 8000)})
    query = s.group_by("k").window(tm.rows(12, every=3)).agg(n=tm.count(), v=tm.sum(col.v))
    live = query.live(tm.Disorder(slack=0))
    found = [live.push(s=batch) for batch in rows.to_batches(max_chunksize=10)]
    assert live.stats().open_partials < 5000
    order = [("k", "ascending"), ("window_start", "ascending"), ("window_end", "ascending")]
    given = pa.concat_tables([*found, live.flush()]).sort_by(order)
    assert given.equals(query.run(s=rows).sort_by(order))
