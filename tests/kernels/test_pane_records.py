"""Planes of records read out by key, and rows picked for lanes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidemill.kernels.pane_records import pick, unroll

RECORD = np.dtype([("kid", "i8"), ("pane", "i8"), ("total", "f8"), ("any", "u1")], align=True)
EMPTY = -(1 << 63)


@given(
    st.sets(st.tuples(st.integers(0, 6), st.integers(0, 7))),
    st.integers(-20, 20),
    st.integers(0, 7),
)
def test_records_of_the_panes_asked_for_come_by_key_and_pane(
    held: set[tuple[int, int]], first: int, asked: int
) -> None:
    planes = np.zeros((8, 9), dtype=RECORD)
    planes["pane"] = EMPTY
    for key, offset in held:
        pane = first + offset
        planes[pane & 7, key] = (key, pane, key + pane / 2, 1)
    out = np.empty(7 * 8 + 1, dtype=RECORD)
    found = out[: unroll(planes, 7, first, first + asked, out)]
    expected = sorted((k, first + o) for k, o in held if o <= asked)
    assert [(int(r["kid"]), int(r["pane"])) for r in found] == expected
    assert [float(r["total"]) for r in found] == [k + p / 2 for k, p in expected]
    assert all(r["any"] == 1 for r in found)


@given(st.lists(st.integers(0, 100)), st.sampled_from([2, 4, 8]))
def test_every_row_is_picked_by_one_lane(kid: list[int], lanes: int) -> None:
    ids = np.asarray(kid, dtype=np.int64)
    room = np.empty(len(kid), dtype=np.uint32)
    picked = [pick(ids, lanes, n, room).tolist() for n in range(lanes)]
    assert sorted(row for rows in picked for row in rows) == list(range(len(kid)))
    assert all(kid[row] % lanes == n for n, rows in enumerate(picked) for row in rows)
