"""Early answers and corrections: the last revisions of all rows are the answer over the events so far.

For every kind of window, rows come in random orders and batches, with promises and restarts between them, and
after each call the revisions so far are compared with what they stand for.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tests.conformance.cases import SOME, TYPICAL, WINDOWS, Row, ask, seeded
from tests.conformance.harness import arrivals, assert_same, locally, split, table_of
from tests.examples import later
from tidemill import col
from tidemill.core.batch import to_rows
from tidemill.local.live import Live
from tidemill.plan.identity import require_identity
from tidemill.stream import Stream


class Consumer:
    """Keeps the last revision of each row, as a user of revisions would."""

    def __init__(self, query: Stream) -> None:
        self.query, self.identity = query, require_identity("test", query.plan)
        self.rows: dict[tuple[Any, ...], Row] = {}
        self.final: set[tuple[Any, ...]] = set()

    def take(self, table: pa.Table) -> None:
        extra = ("revision", "final", "withdrawn")
        values = to_rows(table.drop_columns(list(extra)).to_batches(), self.query.schema)
        for row, marks in zip(values, table.select(list(extra)).to_pylist()):
            key = tuple(repr(row[name]) for name in self.identity)
            assert key not in self.final, "a final row came again"
            before = self.rows.get(key)
            if before is None:
                assert marks["revision"] == 0 or marks["final"] or not marks["withdrawn"]
            else:
                assert marks["revision"] >= before["\0"], "revisions go up"
            if marks["withdrawn"]:
                assert before is not None, "a row was withdrawn that never came"
                assert not marks["final"]
                del self.rows[key]
            else:
                self.rows[key] = {**row, "\0": marks["revision"]}
                if marks["final"]:
                    self.final.add(key)

    @property
    def answer(self) -> list[Row]:
        return [{n: v for n, v in row.items() if n != "\0"} for row in self.rows.values()]


def restarted(live: Live, query: Stream, folder: Path, pick: random.Random, **policies: Any) -> Live:
    saved, keep = pick.choice([(folder / "saved", None), (folder / "saved changes", 2)])
    live.checkpoint(saved, keep=keep)
    live.close()
    return tm.restore(query, saved, threads=pick.choice([1, 2]), **policies)


EMITTED = [*SOME, "per_event", "hopping, filled", "landmark"]


@pytest.mark.parametrize("seed", [1, *later(*range(2, 20))])
@pytest.mark.parametrize("window", EMITTED)
def test_an_early_answer_is_that_of_the_rows_so_far(window: str, seed: int, tmp_path: Path) -> None:
    rows, pick = seeded(120, seed=seed, span=80, keys=4), random.Random(seed)
    query, policies = ask(WINDOWS[window], "one of each", "k"), {"emit": tm.Emit(early=1)}
    arrived = arrivals(rows, "t", pick)["jittered"]  # by up to 4
    live, consumer, so_far, latest = query.live(tm.Disorder(slack=4), **policies), Consumer(query), [], -1
    for some in split(arrived, pick):
        consumer.take(live.push(s=table_of(query, some)))
        so_far += some
        reached = max(row["t"] for row in so_far)
        if reached > latest:  # then there was an early answer
            latest = reached
            assert_same(consumer.answer, locally(query, so_far), query.schema)
        if pick.random() < 0.2:
            live = restarted(live, query, tmp_path, pick, disorder=tm.Disorder(slack=4), **policies)
    consumer.take(live.flush())
    assert_same(consumer.answer, locally(query, rows), query.schema)
    assert consumer.final == set(consumer.rows)


@pytest.mark.parametrize("seed", [1, *later(*range(2, 20))])
@pytest.mark.parametrize("window", EMITTED)
def test_the_last_revisions_are_the_answer_of_the_accepted_rows(
    window: str, seed: int, tmp_path: Path
) -> None:
    rows, pick = seeded(120, seed=seed, span=80, keys=4), random.Random(seed)
    query = ask(WINDOWS[window], "one of each", "k")
    emit = tm.Emit(correct=25, early=pick.choice([None, 7]))
    policies: dict[str, Any] = {"disorder": tm.Disorder(slack=3, consistent=True), "emit": emit}
    policies["latency"] = pick.choice([None, tm.Latency(5, rows=4)])
    arrived = rows[:]
    pick.shuffle(arrived)
    arrived.sort(key=lambda row: row["t"] + pick.choice([0, 0, 0, 5, 20, 60]))
    live, consumer, batches = query.live(**policies), Consumer(query), split(arrived, pick)
    for some in batches:
        consumer.take(live.push(s=table_of(query, some)))
        if pick.random() < 0.2:
            live = restarted(live, query, tmp_path, pick, **policies)
    consumer.take(live.flush())
    stats = live.stats()
    late = [row for row in live.late().to_pylist() if row["late_reason"] == "late"]
    assert len(late) == stats.inputs["s"].late
    assert stats.inputs["s"].corrected or len(batches) < 4
    names = [n for n in live.late().column_names if n != "late_reason"]
    accepted = without(arrived, late, names)
    assert_same(consumer.answer, locally(query, accepted), query.schema)
    assert consumer.final == set(consumer.rows)


def without(rows: list[Row], late: list[Row], names: list[str]) -> list[Row]:
    left, found = [[repr(row[n]) for n in names] for row in late], []
    for row in rows:
        mine = [repr(row[n]) for n in names]
        if mine in left:
            left.remove(mine)
        else:
            found.append(row)
    assert not left
    return found


STREAM = tm.stream("s", time="t", schema={"t": "int64", "k": "int64"})
FEW = STREAM.group_by("k").window(tm.tumbling(10)).agg(n=tm.count()).where(col.n % 3 != 0)


def test_rows_that_a_filter_drops_later_are_withdrawn_and_may_return() -> None:
    live, consumer, counts = FEW.live(emit=tm.Emit(early=1)), Consumer(FEW), []
    for t in range(8):
        table = live.push(s={"t": t, "k": 1})
        consumer.take(table)
        counts.append([row["n"] for row in consumer.answer])
    assert counts == [[1], [2], [], [4], [5], [], [7], [8]]
    assert table.to_pylist()[-1]["revision"] == 7, "revisions go on after a row was withdrawn"


def test_two_sessions_that_become_one() -> None:
    query = STREAM.group_by("k").window(tm.session(5)).agg(n=tm.count())
    live = query.live(tm.Disorder(slack=0), emit=tm.Emit(correct=100))
    assert live.push(s=[{"t": 1, "k": 7}, {"t": 9, "k": 7}, {"t": 30, "k": 7}]).to_pylist() == [
        _session(1, 6, 1), _session(9, 14, 1)
    ]  # fmt: skip
    assert live.push(s=[{"t": 5, "k": 7}]).to_pylist() == [
        {**_session(9, 14, 1, 1), "withdrawn": True}, _session(1, 14, 3, 1)
    ]  # fmt: skip
    assert live.push(s=[{"t": 200, "k": 7}]).to_pylist() == [
        _session(30, 35, 1), {**_session(1, 14, 3, 1), "final": True}, {**_session(30, 35, 1), "final": True}
    ]  # fmt: skip


def _session(start: int, end: int, n: int, revision: int = 0) -> Row:
    row = {"k": 7, "window_start": start, "window_end": end, "n": n, "revision": revision}
    return {**row, "final": False, "withdrawn": False}


def test_promises_of_keys_and_corrections() -> None:
    query = STREAM.group_by("k").window(tm.tumbling(10)).agg(n=tm.count())
    live, consumer = query.live(emit=tm.Emit(correct=20)), Consumer(query)
    consumer.take(live.push(s=[{"t": 1, "k": 1}, {"t": 2, "k": 2}]))
    consumer.take(live.punctuate(10, key={"k": 1}))
    assert [row["k"] for row in consumer.answer] == [1]
    consumer.take(live.push(s=[{"t": 3, "k": 1}, {"t": 3, "k": 2}]))  # late for key 1 only
    assert [(row["k"], row["n"]) for row in consumer.answer] == [(1, 2)]
    consumer.take(live.punctuate(30, key={"k": 1}))
    assert len(consumer.final) == 1
    consumer.take(live.punctuate(30))
    consumer.take(live.flush())
    assert sorted((row["k"], row["n"]) for row in consumer.answer) == [(1, 2), (2, 2)]
    assert live.stats().inputs["s"].corrected == 1


@pytest.mark.parametrize("seed", [1, 2, *later(*range(3, 20))])
def test_latency_changes_when_rows_come_and_nothing_else(seed: int, tmp_path: Path) -> None:
    query, pick = ask(WINDOWS["hopping"], "one of each", "k"), random.Random(seed)
    latency = tm.Latency(pick.choice([1, 5, 100]), rows=pick.choice([1, 10, 1000]))
    policies: dict[str, Any] = {"disorder": tm.Disorder(slack=4), "latency": latency}
    live, found = query.live(**policies), []
    for some in split(arrivals(TYPICAL, "t", pick)["jittered"], pick):
        found.append(live.push(s=table_of(query, some)))
        if pick.random() < 0.2:
            live = restarted(live, query, tmp_path, pick, **policies)
    found.append(live.flush())
    rows = to_rows([b for table in found for b in table.to_batches()], query.schema)
    assert_same(rows, locally(query, TYPICAL), query.schema)
    assert live.stats().late == 0
