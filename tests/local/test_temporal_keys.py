"""Promises about keys, for operators on lifetimes: what is complete for a key comes at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tidemill import col
from tidemill.local.live import Live
from tidemill.stream import Stream

S = tm.stream("s", time="t", schema={"t": "int64", "k": "int64", "v": "int64"})
P = tm.stream("p", time="t", schema={"t": "int64", "k": "int64", "w": "int64"})
HELD = S.where(col.v >= 0).lasting(5)


def row(t: int, k: int, v: int = 1) -> dict[str, int]:
    return {"t": t, "k": k, "v": v}


KEEPING: dict[str, tuple[Callable[[], Stream], list[dict[str, Any]]]] = {
    "agg": (
        lambda: HELD.group_by("k").agg(n=tm.count()),
        [{"k": 1, "valid_from": 0, "valid_to": 2, "n": 1}, {"k": 1, "valid_from": 2, "valid_to": 5, "n": 2},
         {"k": 1, "valid_from": 5, "valid_to": 7, "n": 1}],
    ),
    "top": (
        lambda: HELD.group_by("k").top(1, by="t").select("k"),
        [{"k": 1, "t": 0, "valid_to": 2}, {"k": 1, "t": 2, "valid_to": 7}],
    ),
    "sessions": (
        lambda: S.select("k").until_session_end(4, "k"),
        [{"t": 0, "k": 1, "valid_to": 6}, {"t": 2, "k": 1, "valid_to": 6}],
    ),
    "lag": (
        lambda: S.select("k").lag("k", before="t"),
        [{"t": 0, "k": 1, "before": None}, {"t": 2, "k": 1, "before": 0}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEEPING)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_promise_about_a_key_completes_it(name: str, threads: int, tmp_path: Path) -> None:
    ask, expected = KEEPING[name]
    live = ask().live(threads=threads)
    assert live.push(s=[row(0, 1), row(0, 2), row(2, 1)]).num_rows == 0
    assert live.punctuate(1, key={"k": 3}).num_rows == 0
    found = live.punctuate(20, key={"k": [1]})
    assert sorted(found.to_pylist(), key=str) == sorted(expected, key=str)
    live.checkpoint(tmp_path / "saved")
    live.close()
    again = tm.restore(ask(), tmp_path / "saved", threads=3 - threads)
    assert again.push(s=row(19, 1)).num_rows == 0 and again.stats().late == 1, "late for this key"
    assert again.push(s=row(19, 2)).num_rows == 0 and again.stats().late == 1
    rest = again.flush().to_pylist()
    assert rest and all(r["k"] == 2 for r in rest)


def joined() -> Live:
    live = HELD.join(P, on="k").live()
    live.push(s=[row(0, 1), row(0, 2)], p=[{"t": 3, "k": 1, "w": 7}, {"t": 3, "k": 2, "w": 8}])
    return live


def test_a_join_needs_the_promise_of_both_sides() -> None:
    live = joined()
    assert live.punctuate(9, input="s", key={"k": 1}).num_rows == 0
    [pair] = live.punctuate(9, input="p", key={"k": [1, 3]}).to_pylist()
    assert pair == {"k": 1, "v": 1, "w": 7, "valid_from": 3, "valid_to": 4}
    assert [r["w"] for r in live.flush().to_pylist()] == [8], "each pair comes once"


def test_a_promise_about_all_keys_counts_for_each() -> None:
    live = joined()
    assert live.punctuate(9, input="s").num_rows == 0
    assert [r["w"] for r in live.punctuate(9, input="p", key={"k": 2}).to_pylist()] == [8]
    assert [r["w"] for r in live.punctuate(9, input="p").to_pylist()] == [7]


def test_a_promise_about_other_columns_waits_for_all() -> None:
    live = HELD.group_by("k").agg(n=tm.count()).live()
    live.push(s=[row(0, 1)])
    assert live.punctuate(20, key={"v": 1}).num_rows == 0
    assert live.punctuate(20).num_rows == 1


@pytest.mark.parametrize("key", [1, 2, 3, 4])
def test_a_thread_without_work_may_still_know_a_promise_that_is_over(key: int, tmp_path: Path) -> None:
    """Rows of one key only, so that one of two threads works and forgets what it was promised."""
    query = S.group_by("k").agg(n=tm.count())
    live = query.live(threads=2)
    live.push(s=row(0, key))
    live.punctuate(5, key={"k": [7, 8]})
    assert live.punctuate(9).num_rows == 1
    live.checkpoint(tmp_path / "saved")
    live.close()
    again = tm.restore(query, tmp_path / "saved", threads=1)
    again.push(s=[row(8, 7), row(9, 7)])
    assert again.stats().late == 1
    assert [r["valid_from"] for r in again.flush().to_pylist()] == [9]


def test_a_promise_about_a_text_says_nothing_about_null() -> None:
    named = tm.stream("s", time="t", end="u", schema={"t": "int64", "u": "int64", "name": "string"})
    query = named.group_by("name").apply(lambda group: group.agg(n=tm.count()))
    live = query.live()
    first, second = {"t": 4, "u": 19, "name": None}, {"t": 13, "u": 15, "name": None}
    found = live.push(s=first).to_pylist() + live.punctuate(40, key={"name": "b"}).to_pylist()
    assert found == []
    live.push(s=second)
    assert live.flush().to_pylist() == query.run(s=[first, second]).to_pylist()
