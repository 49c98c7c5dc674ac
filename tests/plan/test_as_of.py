"""Which joins look up the last known value, and that their rows come at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tidemill as tm
from tidemill import col
from tidemill.plan.as_of import as_of
from tidemill.stream import Stream

SCHEMA = {"t": "int64", "sym": "string", "v": "int64"}
TRADES, QUOTES = (tm.stream(n, time="t", schema=SCHEMA) for n in ("trades", "quotes"))
LAST = QUOTES.until_next("sym")


def test_the_pattern() -> None:
    found = as_of(TRADES.join(LAST, on="sym").optimized)
    assert (
        found is not None
        and found.tolerance is None
        and str(found.rows).startswith("source quotes")
    )
    found = as_of(
        TRADES.join(
            QUOTES.where(col.v > 1).until_next("sym").at_most(3), on="sym", how="left"
        ).optimized
    )
    assert found is not None and found.tolerance == 3


@pytest.mark.parametrize(
    "query",
    [
        lambda: TRADES.lasting(2).join(LAST, on="sym"),  # not points
        lambda: TRADES.join(LAST, on=["sym", "v"]),  # the last row of a key may have another v
        lambda: TRADES.join(QUOTES.until_next("v"), on="sym"),
        lambda: TRADES.join(QUOTES.until_next(), on="sym"),
        lambda: TRADES.join(LAST.extend(2), on="sym"),
        lambda: TRADES.join(LAST.until(col.v), on="sym"),
        lambda: TRADES.join(LAST.where(col.v > 1), on="sym"),
        lambda: TRADES.join(LAST, on="sym", how="outer"),
        lambda: TRADES.join(LAST, on="sym", where=lambda l, r: r.valid_to > 5),
        lambda: TRADES.join(QUOTES.lasting(tm.FOREVER).clip(TRADES, on="sym"), on="sym"),
    ],
)
def test_what_is_not_the_pattern(query: Callable[[], Stream]) -> None:
    assert as_of(query().optimized) is None


def test_a_clip_of_rows_without_ends_is_not_the_pattern() -> None:
    held = QUOTES.lasting(5)
    starts = held.at_start().clip(held)
    rows = [{"t": t, "sym": "a", "v": t} for t in (1, 2)]
    assert starts.explain() and starts.run(quotes=rows)["v"].to_pylist() == [1, 2]


def test_no_row_waits_until_an_end_is_known() -> None:
    live = TRADES.join(LAST, on="sym").live()
    live.push(quotes=[{"t": 1, "sym": "X", "v": 7}, {"t": 1, "sym": "Y", "v": 8}])
    live.push(trades=[{"t": 4, "sym": "X", "v": 0}, {"t": 6, "sym": "Y", "v": 0}])
    assert live.punctuate(5).to_pylist() == [
        {"sym": "X", "v": 0, "v_right": 7, "valid_from": 4, "valid_to": 5}
    ]
    live.push(quotes=[{"t": 6, "sym": "Y", "v": 9}])
    assert [r["v_right"] for r in live.punctuate(7).to_pylist()] == [9]
    assert live.flush().num_rows == 0


def test_state_is_the_last_row_of_each_key() -> None:
    live = TRADES.join(QUOTES.until_next("sym").at_most(10), on="sym").live()
    for t in range(50):
        live.push(quotes=[{"t": t, "sym": "X", "v": t}, {"t": t, "sym": str(t % 20), "v": t}])
        live.punctuate(t + 1)
    kept = live.stats().open_partials
    assert kept == 10  # of X and of nine others: the rest is older than the tolerance


def test_explain() -> None:
    said = TRADES.join(LAST, on="sym").explain().sections["local"]
    assert "each point looks up the last rows of its key" in said


def test_points_of_a_stream_that_are_clipped_by_it_are_no_last_values() -> None:
    held = tm.stream("held", time="t", end="u", schema={"t": "int64", "u": "int64", "k": "int64"})
    rows = [{"t": 1, "u": 5, "k": 7}, {"t": 2, "u": 3, "k": 7}]
    starts = [{"t": 1, "k": 7}, {"t": 2, "k": 7}]
    assert held.at_start().clip(held).run(held=rows).to_pylist() == starts
    by_key = held.group_by("k").apply(lambda g: g.at_start().clip(g))
    assert by_key.run(held=rows).to_pylist() == starts
