"""The examples of paper 000 (Trill), on rows whose answers can be checked by hand."""

from __future__ import annotations

import random
from typing import Any

import pytest

import tidemill as tm
from tests.conformance.temporal import as_snapshots, assert_rows, by_reference
from tidemill import col
from tidemill.stream import Stream

Row = dict[str, Any]

CLICKS = tm.stream("clicks", time="at", schema={"at": "int64", "user": "int64", "ad": "int64"})
SAMPLED = CLICKS.where(lambda e: e.user % 100 < 5).select("ad", "user")
"""Clicks of a 5 % sample of users."""
MADE = [
    {"at": 10, "user": 1, "ad": 7}, {"at": 12, "user": 99, "ad": 7}, {"at": 12, "user": 103, "ad": 7},
    {"at": 17, "user": 2, "ad": 8}, {"at": 21, "user": 204, "ad": 7}, {"at": 40, "user": 0, "ad": 7},
]  # fmt: skip


def both(query: Stream, **inputs: list[Row]) -> list[Row]:
    """The answer of this process, which is that of the definition."""
    found = query.run(**inputs).to_pylist()
    assert_rows(found, by_reference(query, inputs), "run")
    return found


def test_section_2_running_example() -> None:
    """For each ad, a windowed count of clicks; an instant of the answer looks back five minutes."""
    query = SAMPLED.group_by("ad").apply(lambda s: s.lasting(5).agg(n=tm.count()))
    assert_rows(
        both(query, clicks=MADE),
        [
            {"ad": 7, "valid_from": 10, "valid_to": 12, "n": 1},
            {"ad": 7, "valid_from": 12, "valid_to": 15, "n": 2},
            {"ad": 7, "valid_from": 15, "valid_to": 17, "n": 1},
            {"ad": 7, "valid_from": 21, "valid_to": 26, "n": 1},
            {"ad": 7, "valid_from": 40, "valid_to": 45, "n": 1},
            {"ad": 8, "valid_from": 17, "valid_to": 22, "n": 1},
        ],
        "running example",
    )


def test_section_6_1_map_and_reduce() -> None:
    """The running example by user, as a map and a reduce."""
    spelled = CLICKS.map(lambda s: s.where(lambda e: e.user % 100 < 5).select("user"), "user").reduce(
        lambda s: s.lasting(5).agg(n=tm.count())
    )
    short = CLICKS.where(lambda e: e.user % 100 < 5).lasting(5).group_by("user").agg(n=tm.count())
    rows = [*MADE, {"at": 11, "user": 1, "ad": 8}]
    assert_rows(both(spelled, clicks=rows), both(short, clicks=rows), "map and reduce")
    assert {"user": 1, "valid_from": 11, "valid_to": 15, "n": 2} in both(spelled, clicks=rows)


@pytest.mark.parametrize(("size", "every", "origin"), [(5, 5, 0), (6, 2, 0), (7, 3, 1), (2, 5, 0), (4, 1, 0)])
def test_hopping_windows_are_snapshots_of_quantised_lifetimes(size: int, every: int, origin: int) -> None:
    pick = random.Random(size)
    rows = [
        {"at": pick.randint(-9, 60), "user": pick.randint(0, 9), "ad": pick.randint(0, 2)} for _ in range(40)
    ]
    asked = {"n": tm.count(), "users": tm.distinct_count(col.user)}
    windows = both(
        SAMPLED.group_by("ad").window(tm.hopping(size, every=every, origin=origin)).agg(**asked), clicks=rows
    )
    snapshots = SAMPLED.quantised(size, every=every, origin=origin).group_by("ad").agg(**asked)
    # A window that ends at w is the answer in [w, w + every).
    held = [
        {"ad": w["ad"], "n": w["n"], "users": w["users"], "valid_from": w["window_end"],
         "valid_to": w["window_end"] + every}
        for w in windows
    ]  # fmt: skip
    expected = as_snapshots(snapshots.plan, held)
    assert as_snapshots(snapshots.plan, both(snapshots, clicks=rows)) == expected


def test_three_spellings_of_a_windowed_count_agree() -> None:
    """At each bound of the grid: hopping windows, quantised lifetimes, and lasting rows that are sampled."""
    rows = [row for row in MADE if row["user"] % 100 < 5]
    hopping = both(CLICKS.group_by("ad").window(tm.hopping(10, every=5)).agg(n=tm.count()), clicks=rows)
    quantised = both(CLICKS.quantised(10, every=5).group_by("ad").agg(n=tm.count()).sample(5), clicks=rows)
    # A window [w - 10, w) does not have its end: at w, rows hold that started in (w - 1 - 10, w - 1].
    lasting = both(CLICKS.shift(1).lasting(10).group_by("ad").agg(n=tm.count()).sample(5), clicks=rows)
    by_bound = {(w["ad"], w["window_end"]): w["n"] for w in hopping}
    assert by_bound == {(r["ad"], r["valid_from"]): r["n"] for r in quantised}
    assert by_bound == {(r["ad"], r["valid_from"]): r["n"] for r in lasting}
    assert by_bound[7, 15] == 2 and by_bound[7, 20] == 2 and by_bound[8, 25] == 1


def test_section_5_2_snapshots() -> None:
    """Events come as intervals, or as edges that insert and delete them; the snapshots are the same."""
    columns = {"t": "int64", "id": "int64", "v": "int64"}
    intervals = tm.stream("s", time="t", end="u", schema={**columns, "u": "int64"})
    edges = tm.stream("e", time="t", schema={**columns, "insert": "bool"})
    rows = [
        {"t": 1, "u": 6, "id": 1, "v": 10},
        {"t": 3, "u": 8, "id": 2, "v": 20},
        {"t": 6, "u": None, "id": 3, "v": 30},
    ]
    asked = {"n": tm.count(), "total": tm.sum(col.v)}
    walk = [
        {"valid_from": 1, "valid_to": 3, "n": 1, "total": 10},
        {"valid_from": 3, "valid_to": 6, "n": 2, "total": 30},
        {"valid_from": 6, "valid_to": 8, "n": 2, "total": 50},  # one goes as another comes
        {"valid_from": 8, "valid_to": None, "n": 1, "total": 30},
    ]
    assert_rows(both(intervals.agg(**asked), s=rows), walk, "intervals")
    came = [{"t": r["t"], "id": r["id"], "v": r["v"], "insert": True} for r in rows]
    went = [{"t": r["u"], "id": r["id"], "v": None, "insert": False} for r in rows if r["u"] is not None]
    paired = edges.from_edges("id", start=col.insert)
    assert_rows(both(paired.agg(**asked), e=[*went, *came]), walk, "edges")
    # Section 5.2.1: several aggregates at once, combined for each snapshot.
    average = intervals.agg(s=tm.sum(col.v), c=tm.count()).select(mean=col.s / col.c)
    means = {r["valid_from"]: r["mean"] for r in both(average, s=rows)}
    assert means == {1: 10, 3: 15, 6: 25, 8: 30}


SEARCHES = tm.stream("log", time="t", schema={"t": "int64", "user": "int64", "phrase": "string"})


def test_section_7_2_2_a_then_b_within_an_hour() -> None:
    a = SEARCHES.where(lambda e: e.phrase.starts_with("a"))
    b = SEARCHES.where(lambda e: e.phrase.starts_with("b"))
    # A search for B that comes after, at most an hour later: A holds from the next instant on.
    query = a.shift(1).lasting(60).join(b, on="user").select("user", a="phrase", b="phrase_right")
    rows = [
        {"t": 0, "user": 1, "phrase": "a1"}, {"t": 60, "user": 1, "phrase": "b1"},
        {"t": 61, "user": 1, "phrase": "b2"}, {"t": 5, "user": 2, "phrase": "b1"},
        {"t": 9, "user": 2, "phrase": "a1"}, {"t": 9, "user": 2, "phrase": "b2"},
        {"t": 30, "user": 2, "phrase": "b3"}, {"t": 10, "user": 3, "phrase": "a2"},
    ]  # fmt: skip
    found = both(query, log=rows)
    assert sorted((r["user"], r["a"], r["b"], r["valid_from"]) for r in found) == [
        (1, "a1", "b1", 60), (2, "a1", "b3", 30),
    ]  # fmt: skip
    # And A without any B within the hour after.
    alone = a.shift(1).where_not_exists(b.shift(-59).lasting(60), on="user").select("user", "phrase")
    assert [(r["user"], r["phrase"]) for r in both(alone, log=rows)] == [(3, "a2")]


def test_section_7_3_3_term_comparison() -> None:
    """Entities that users compare ("x vs y"), and the clicks of all searches for one of them."""
    log = tm.table("log", schema={"phrase": "string", "clicks": "int64"})
    sides = log.where(col.phrase.contains(" vs ")).select_many(term=col.phrase.split(" vs ")).select("term")
    looked_up = log.join(sides.distinct("term"), on={"phrase": "term"})
    query = looked_up.group_by("phrase").agg(total=tm.sum(col.clicks))
    rows = [
        {"phrase": "tea vs coffee", "clicks": 3}, {"phrase": "tea", "clicks": 10},
        {"phrase": "coffee", "clicks": 4}, {"phrase": "coffee", "clicks": 5},
        {"phrase": "coffee vs milk", "clicks": 1}, {"phrase": "water", "clicks": 100},
    ]  # fmt: skip
    assert_rows(
        both(query, log=rows),
        [{"phrase": "tea", "total": 10}, {"phrase": "coffee", "total": 9}],
        "term comparison",
    )


def test_section_7_3_3_top_correlated() -> None:
    """For each word: of the users who searched for it, the share of those who also searched for "vegas"."""
    log = tm.table("log", schema={"user": "int64", "phrase": "string"})
    words = log.select_many(word=col.phrase.split(" ")).distinct("user", "word")
    fans = words.where(col.word == "vegas").select("user")
    both_words = words.where_exists(fans, on="user").group_by("word").agg(both=tm.count())
    query = words.group_by("word").agg(all=tm.count()).join(both_words, on="word").select(
        "word", ratio=col.both / col["all"]
    )
    rows = [
        {"user": 1, "phrase": "vegas hotel"}, {"user": 1, "phrase": "hotel cheap"},
        {"user": 2, "phrase": "hotel"}, {"user": 3, "phrase": "vegas show"},
        {"user": 3, "phrase": "vegas vegas"}, {"user": 4, "phrase": "rain"},
    ]  # fmt: skip
    assert_rows(
        both(query, log=rows),
        [
            {"word": "vegas", "ratio": 1.0}, {"word": "hotel", "ratio": 0.5},
            {"word": "cheap", "ratio": 1.0}, {"word": "show", "ratio": 1.0},
        ],
        "top correlated",
    )  # fmt: skip
