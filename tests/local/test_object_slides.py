"""Partials of Python objects move from window to window in every way, and give the definition's answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.conformance.harness import assert_same, by_reference, in_batches
from tests.conformance.user_states import less, longest_run, middle, mode, run_off, seen, unseen
from tests.examples import examples
from tidemill import col

STREAM = tm.stream("s", time="t", schema={"t": "int64", "k": "int64", "v": "int64"})
AGGREGATES = {
    "two stacks": mode()(col.v), "inverse": mode(inverse=less)(col.v),
    "subtract": mode(subtract=unseen)(col.v), "frozen": middle(col.v), "in order": longest_run()(col.v),
    "in order, subtract": longest_run(subtract=run_off)(col.v),
}  # fmt: skip
WINDOWS = [
    tm.hopping(20, every=2), tm.per_event(12), tm.per_event(12, partition_by=[]),
    tm.per_event(12, every=2, by="rank"),
    tm.rows(12, every=1), tm.rows(12, every=3, partition_by="k"), tm.rows(15, every=20, partition_by="k"),
]  # fmt: skip
some_rows = st.lists(
    st.fixed_dictionaries(
        {"t": st.integers(-20, 20), "k": st.integers(0, 1), "v": st.none() | st.integers(0, 3)}
    ),
    max_size=40,
)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@given(rows=some_rows, cut=st.integers(0, 40))
@examples(8, of=50)
def test_every_way_agrees_with_the_definition(window: Any, rows: list[dict[str, Any]], cut: int) -> None:
    query = STREAM.group_by("k").window(window).agg(**AGGREGATES)
    rows.sort(key=lambda row: row["t"])
    got = in_batches(query, [rows[:cut], rows[cut:]], promises=True, speed="eager")
    assert_same(got, by_reference(query, rows), query.schema)


def test_rows_come_in_and_go_out_once() -> None:
    calls = {"seen": 0, "unseen": 0}

    def counted_in(counts: dict[Any, int], x: Any) -> dict[Any, int]:
        calls["seen"] += 1
        return seen(counts, x)

    def counted_out(counts: dict[Any, int], x: Any) -> dict[Any, int]:
        calls["unseen"] += 1
        return unseen(counts, x)

    own = tm.aggregate(
        "kinds", identity=dict, accumulate=counted_in, subtract=counted_out, lower=len,
        combine=lambda a, b: pytest.fail("nothing need be combined"),
    )  # fmt: skip
    query = STREAM.window(tm.per_event(50)).agg(n=own(col.v))
    rows = [{"t": t, "k": 0, "v": t * 7 % 9} for t in range(300)]
    result = query.run(s=rows)
    assert result["n"].to_pylist()[100:] == [9] * 200
    assert calls == {"seen": 300, "unseen": 250}
    assert "subtract the rows that leave" in query.explain().sections["local"]
