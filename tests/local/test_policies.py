"""Policies of live queries as a user meets them: early answers, corrections, larger batches, whole files."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemill as tm
from tidemill import col
from tidemill.core.schema import schema
from tidemill.local.given_rows import GivenRows

STREAM = tm.stream("s", time="t", schema={"t": "int64", "k": "string", "x": "int64"})
SUMS = STREAM.group_by("k").window(tm.tumbling(10)).agg(x=tm.sum(col.x))
CLICKS = tm.stream("clicks", time="ts", schema={"ts": "timestamp", "ad": "int64"})


def row(t: int, k: str = "a", x: int = 1) -> dict[str, Any]:
    return {"t": t, "k": k, "x": x}


def result(start: int, x: int, revision: int, final: bool = False, k: str = "a") -> dict[str, Any]:
    bounds = {"k": k, "window_start": start, "window_end": start + 10}
    return {**bounds, "x": x, "revision": revision, "final": final, "withdrawn": False}


# --- early and corrected rows -------------------------------------------------------------------------


def test_open_windows_come_when_time_passes_a_multiple() -> None:
    live = SUMS.live(tm.Disorder(slack=0), emit=tm.Emit(early=5))
    assert live.push(s=row(1)).to_pylist() == [result(0, 1, 0)]
    assert live.push(s=[row(2), row(4)]).num_rows == 0, "5 was not passed"
    assert live.push(s=row(5)).to_pylist() == [result(0, 4, 1)]
    assert live.push(s=row(7, x=0)).num_rows == 0
    assert live.push(s=row(13)).to_pylist() == [result(0, 4, 1, final=True), result(10, 1, 0)]
    assert live.flush().to_pylist() == [result(10, 1, 0, final=True)]


@pytest.mark.parametrize(
    "window", [tm.session(20), tm.rows(2, every=10, slide_on="t"), tm.rows(3, every=2)], ids=str
)
def test_windows_without_keys_can_be_early(window: tm.Window) -> None:
    query = STREAM.window(window).agg(n=tm.count()).where(col.n != 2)
    live, rows = query.live(tm.Disorder(slack=0), emit=tm.Emit(early=1)), [row(t) for t in (1, 2, 3, 45, 46)]
    given = pa.concat_tables([*(live.push(s=one) for one in rows), live.flush()])
    final = given.filter(given["final"]).drop_columns(["revision", "final", "withdrawn"])
    assert final.equals(query.run(s=rows))
    assert tm.reconcile(query, given, s=rows).num_rows == 0


def test_late_events_correct_rows_for_as_long_as_they_are_kept() -> None:
    live = SUMS.live(tm.Disorder(slack=0), emit=tm.Emit(correct=15))
    assert live.push(s=[row(3), row(12)]).to_pylist() == [result(0, 1, 0)]
    assert live.push(s=row(4)).to_pylist() == [result(0, 2, 1)]
    assert live.push(s=row(25)).to_pylist() == [result(10, 1, 0), result(0, 2, 1, final=True)]
    assert live.push(s=row(9)).num_rows == 0, "later than is kept"
    assert live.late().to_pydict()["late_reason"] == ["corrected", "late"]
    stats = live.stats()
    assert (stats.late, stats.inputs["s"].late, stats.inputs["s"].corrected) == (2, 1, 1)
    assert "1 late" in repr(stats) and "1 corrected" in repr(stats)


@pytest.mark.parametrize(
    ("query", "emit", "said"),
    [
        (STREAM.where(col.x > 1), tm.Emit(early=5), "windows or aggregates of which the result keeps"),
        (SUMS.select("x"), tm.Emit(early=5), "keeps the keys"),
        (SUMS, tm.Emit(early="5s"), "early in logical time"),
        (CLICKS.window(tm.tumbling("1m")).agg(n=tm.count()), tm.Emit(correct=5), "correct in clock time"),
        (STREAM.window(tm.tumbling(5)).agg(final=tm.count()), tm.Emit(early=5), "without a column of that"),
        (SUMS, "early", r"a tm\.Emit"),
    ],
)
def test_what_cannot_be_revised_is_refused(query: Any, emit: Any, said: str) -> None:
    with pytest.raises(tm.UserError, match=said):
        query.live(emit=emit)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (lambda: tm.Emit(), "early= or correct="),
        (lambda: tm.Emit(early=0), "early greater than zero"),
        (lambda: tm.Emit(correct="-1s"), "correct greater than zero"),
        (lambda: tm.Latency(0), "greater than zero"),
        (lambda: tm.Latency(5, rows=0), "at least 1"),
    ],
)
def test_policies_that_mean_nothing_are_refused(policy: Any, said: str) -> None:
    with pytest.raises(tm.UserError, match=said):
        policy()


def test_a_checkpoint_needs_the_policies_that_its_state_is_for(tmp_path: Path) -> None:
    path = tmp_path / "saved"
    corrected = SUMS.live(tm.Disorder(slack=0), emit=tm.Emit(correct=15))
    corrected.push(s=[row(3), row(12)])
    corrected.checkpoint(path)
    others = ((None, "emit=, as"), (tm.Emit(correct=16), "correct=16"), (tm.Emit(early=1), "correct=None"))
    for emit, said in others:
        with pytest.raises(tm.UserError, match=said):
            tm.restore(SUMS, path, tm.Disorder(slack=0), emit=emit)
    SUMS.live().checkpoint(path)
    with pytest.raises(tm.UserError, match="a query with emit="):
        tm.restore(SUMS, path, emit=tm.Emit(early=1))
    waiting = SUMS.live(latency=tm.Latency(10))
    waiting.push(s=row(3))
    waiting.push(s=row(4))
    waiting.checkpoint(path)
    with pytest.raises(tm.UserError, match="latency="):
        tm.restore(SUMS, path)
    assert tm.restore(SUMS, path, latency=tm.Latency(10)).flush().to_pydict()["x"] == [2]


def test_rows_that_were_given_take_the_memory_of_those_that_may_change() -> None:
    given = GivenRows(schema({"k": "int64", "x": "string"}), ("k",))
    for first in range(0, 400_000, 4_000):
        rows = pa.table({"k": range(first, first + 4_000), "x": ["a"] * 4_000})
        assert given.note(rows, open=False)[0].all()
        given.finish(rows.slice(0, 3_999))  # one is never finished
    assert given.count == 100
    assert len(given._place) < 20_000 and sum(len(p.rows) for p in given._parts.values()) < 20_000
    assert given.absent(pa.table({"k": [3_999], "x": ["a"]}), open=False)[0].num_rows == 99


# --- larger batches -----------------------------------------------------------------------------------


def test_rows_wait_until_time_passes_a_multiple_of_the_latency() -> None:
    live = SUMS.live(tm.Disorder(slack=0), latency=tm.Latency(10))
    assert live.push(s=row(1)).num_rows == 0
    assert live.push(s=[row(3), row(8)]).num_rows == 0
    assert live.stats().inputs["s"].watermark == 1
    assert live.push(s=row(2)).num_rows == 0, "it is not late: the watermark has not advanced"
    assert live.push(s=row(11)).to_pydict()["x"] == [4]
    assert live.stats().late == 0


def test_a_batch_of_the_greatest_size_is_processed_at_once() -> None:
    live = SUMS.live(tm.Disorder(slack=0), latency=tm.Latency(1000, rows=3))
    partials = []
    for key in "abcd":  # the first one passes a multiple of 1000, the others wait
        live.push(s=row(1, key))
        partials.append(live.stats().open_partials)
    assert partials == [1, 1, 1, 4]
    live.punctuate(5)
    assert live.punctuate(10).to_pydict()["x"] == [1] * 4


# --- tasks --------------------------------------------------------------------------------------------


def test_results_can_be_awaited() -> None:
    async def reads(live: Any) -> list[int]:
        return [x async for table in live for x in table.to_pydict()["x"]]

    async def main() -> tuple[list[int], list[int]]:
        live = SUMS.live(tm.Disorder(slack=0))
        readers = [asyncio.create_task(reads(live)) for _ in range(2)]
        await asyncio.sleep(0)  # they begin
        for t in range(0, 50, 5):
            live.push(s=row(t))
            await asyncio.sleep(0)
        live.flush()
        one, other = await asyncio.gather(*readers)
        return one, other

    one, other = asyncio.run(main())
    assert one == other == [2] * 5


def test_a_subscriber_may_write_a_checkpoint(tmp_path: Path) -> None:
    live = SUMS.live(tm.Disorder(slack=0))
    live.subscribe(lambda table: live.checkpoint(tmp_path / "saved"))
    live.push(s=[row(1), row(12)], position=2)
    with pytest.warns(match="a query that is live"):
        live.flush()
    again = tm.restore(SUMS, tmp_path / "saved", tm.Disorder(slack=0))
    assert again.positions == {"s": 2}
    assert again.flush().to_pydict()["window_start"] == [10]


def test_a_restored_query_must_say_how_far_time_is_complete(tmp_path: Path) -> None:
    SUMS.live(tm.Disorder(slack=0)).checkpoint(tmp_path / "saved")
    with pytest.raises(tm.UserError, match="disorder=, as the query had"):
        tm.restore(SUMS, tmp_path / "saved")
    tm.restore(SUMS, tmp_path / "saved", tm.Disorder())


def test_a_restored_query_lets_rows_wait_as_long_as_before(tmp_path: Path) -> None:
    policies: dict[str, Any] = {"disorder": tm.Disorder(slack=0, consistent=True), "latency": tm.Latency(100)}
    live = SUMS.live(**policies)
    live.push(s=row(105))
    live.checkpoint(tmp_path / "saved")
    live = tm.restore(SUMS, tmp_path / "saved", **policies)
    live.push(s=row(120))
    live.push(s=row(106))
    assert live.stats().late == 0
    assert live.flush().to_pydict()["x"] == [2, 1]


def test_results_end_with_the_query_by_what_it_raised() -> None:
    async def main() -> None:
        live = SUMS.live(tm.Disorder(slack=0))
        reader = live.__aiter__()
        with pytest.raises(tm.UserError, match="overflow"):
            live.push(s=[row(1, x=1 << 62), row(2, x=1 << 62), row(20)])
        with pytest.raises(tm.UserError, match="overflow"):
            await anext(reader)
        with pytest.raises(StopAsyncIteration):
            await anext(reader)

    asyncio.run(main())


def test_stats_of_a_query_that_has_ended() -> None:
    for ends in ("close", "flush"):
        live = SUMS.live(tm.Disorder(slack=0), threads=2)
        for t in range(0, 30, 3):
            live.push(s=[row(t, key) for key in "abcdef"])
        getattr(live, ends)()
        assert live.stats().events == 60 and "ended" in repr(live)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"threads": 0}, "at least 1"), ({"threads": 2.5}, "at least 1"), ({"pool": 3}, "concurrent.futures")],
)
def test_threads_that_cannot_be_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(tm.UserError, match=said):
        SUMS.live(**options)


def test_queries_share_the_threads_of_a_pool() -> None:
    rows = pa.Table.from_pylist([row(t // 20, str(t % 97)) for t in range(12_000)])
    expected = SUMS.run(s=rows).num_rows
    with ThreadPoolExecutor(2, "mine") as pool:
        lives = [SUMS.live(tm.Disorder(slack=0), threads=2, pool=pool) for _ in range(3)]
        before = {t.name for t in threading.enumerate() if t.name.startswith("tidemill")}
        found = [0] * len(lives)
        for start in range(0, len(rows), 2_000):
            for number, live in enumerate(lives):
                found[number] += live.push(s=rows.slice(start, 2_000)).num_rows
        assert {t.name for t in threading.enumerate() if t.name.startswith("tidemill")} <= before
        assert [n + live.flush().num_rows for n, live in zip(found, lives)] == [expected] * 3


# --- whole inputs -------------------------------------------------------------------------------------


def disordered(n: int = 400, seed: int = 5) -> list[dict[str, Any]]:
    pick = random.Random(seed)
    return [row(t + pick.choice([0, 0, 0, -7, -25]), pick.choice("ab")) for t in range(30, 30 + n)]


@pytest.mark.parametrize("policy", [{}, {"consistent": True}, {"late": "adjust"}], ids=str)
def test_run_with_a_policy_is_the_live_query_over_the_rows_as_stored(
    policy: dict[str, Any], tmp_path: Path
) -> None:
    rows, disorder = disordered(), tm.Disorder(slack=10, **policy)
    live = SUMS.live(disorder)
    given = pa.concat_tables([*(live.push(s=one) for one in rows), live.flush()])
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet", row_group_size=100)
    for source in (rows, pa.Table.from_pylist(rows), tmp_path / "rows.parquet"):
        table = SUMS.run(s=source, disorder=disorder)
        assert table.sort_by([("window_start", "ascending"), ("k", "ascending")]).equals(
            given.sort_by([("window_start", "ascending"), ("k", "ascending")])
        )
        assert table.schema.metadata[b"tidemill.late"] == str(live.stats().late).encode() != b"0"
    assert SUMS.run(s=rows).schema.metadata is None, "without a policy, no row is late"


def test_a_wheel_has_no_order_for_a_policy_to_be_about() -> None:
    kinds = {"t": "int64", "x": "int64"}
    wheel = tm.Wheel(tm.sum(col.x), schema=kinds, time="t", start=0, granularities=[10])
    query = tm.stream("s", time="t", schema=kinds).window(tm.tumbling(10))
    with pytest.raises(tm.UserError, match="a wheel"):
        query.agg(x=tm.sum(col.x)).run(s=wheel, disorder=tm.Disorder(slack=0))


def counted(taken: list[int], n: int) -> Iterator[pa.Table]:
    for start in range(0, n, 1000):
        taken.append(1000)
        yield pa.Table.from_pylist([row(start + i) for i in range(1000)])


def test_batches_come_as_soon_as_windows_are_complete() -> None:
    ordered = tm.stream("s", time="t", schema={"t": "int64", "k": "string", "x": "int64"}, ordered=True)
    query = ordered.group_by("k").window(tm.tumbling(10)).agg(x=tm.sum(col.x))
    taken: list[int] = []
    first = next(query.batches(s=counted(taken, 20_000)))
    assert sum(taken) <= 2000 and first.num_rows
    taken = []
    first = next(SUMS.batches(s=counted(taken, 20_000), disorder=tm.Disorder(slack=10)))
    assert sum(taken) <= 2000 and first.num_rows
    found = SUMS.batches(s=counted([], 5_000), disorder=tm.Disorder(slack=0), emit=tm.Emit(early=3))
    assert next(found).schema.names[-3:] == ["revision", "final", "withdrawn"]
    late = list(SUMS.batches(s=counted([], 5_000), disorder=tm.Disorder(slack=0), latency=tm.Latency(2000)))
    assert pa.Table.from_batches(late).num_rows == 500


def test_a_live_query_on_an_ordered_stream_follows_its_rows() -> None:
    ordered = tm.stream("s", time="t", schema={"t": "int64"}, ordered=True)
    live = ordered.window(tm.tumbling(10)).agg(n=tm.count()).live()
    assert live.push(s=[{"t": 1}, {"t": 10}]).to_pydict()["n"] == [1]
    with pytest.raises(tm.UserError, match="no row below the watermark"):
        live.push(s={"t": 9})
    assert live.push(s={"t": 20}).num_rows == 1


# --- what late events would have changed --------------------------------------------------------------


def test_late_events_are_reconciled_with_what_was_given() -> None:
    rows = disordered()
    live = SUMS.live(tm.Disorder(slack=10, consistent=True))
    given = pa.concat_tables([*(live.push(s=one) for one in rows), live.flush()])
    changes = tm.reconcile(SUMS, given, s=rows).to_pylist()
    answers = SUMS.run(s=rows), given
    whole, mine = ({(r["k"], r["window_start"]): r["x"] for r in t.to_pylist()} for t in answers)
    assert {(c["k"], c["window_start"]): (c["change"], c["x"], c["given_x"]) for c in changes} == {
        key: ("changed" if key in mine else "added", whole[key], mine.get(key))
        for key in whole if whole[key] != mine.get(key)
    }  # fmt: skip
    late = {repr({n: v for n, v in r.items() if n != "late_reason"}) for r in live.late().to_pylist()}
    on_time = [r for r in rows if repr(r) not in late]
    assert tm.reconcile(SUMS, given, late=live.late(), s=on_time).num_rows <= len(changes)
    with pytest.raises(tm.UserError, match="late= by input"):
        tm.reconcile(SUMS, given, late={"other": live.late()}, s=on_time)


def test_corrected_events_are_part_of_the_answer() -> None:
    live, on_time = SUMS.live(tm.Disorder(slack=0), emit=tm.Emit(correct=600)), [row(1), row(100)]
    given = pa.concat_tables([live.push(s=on_time), live.push(s=row(2)), live.flush()])
    assert tm.reconcile(SUMS, given, late=live.late(), s=on_time).num_rows == 0


def test_reconciled_revisions_and_rows_that_should_not_have_come() -> None:
    query = STREAM.group_by("k").window(tm.session(5)).agg(n=tm.count())
    live = query.live(tm.Disorder(slack=0), emit=tm.Emit(early=1))
    given = pa.concat_tables([*(live.push(s=row(t)) for t in (1, 9, 20, 5)), live.flush()])
    on_time = [row(1), row(9), row(20)]
    changes = tm.reconcile(query, given, late=live.late(), s=on_time)
    assert changes.to_pydict()["change"] == ["changed", "withdrawn"]
    assert tm.reconcile(query, given, s=on_time).num_rows == 0
    with pytest.raises(tm.UserError, match="the rows that were given"):
        tm.reconcile(query, given.select(["n"]), s=[])
