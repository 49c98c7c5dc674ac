"""Dense ids against a Python dict."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.schema import schema
from tidemill.kernels.index import IntIndex, StringIndex
from tidemill.kernels.keys import KeyIndex

ints = st.one_of(st.integers(-3, 3), st.integers(-(1 << 63), (1 << 63) - 1))


@given(st.lists(st.lists(st.one_of(st.none(), ints), max_size=20), max_size=4))
def test_int_index_is_a_dict_in_order_of_appearance(batches: list[list[int | None]]) -> None:
    index, seen = IntIndex(), dict[int | None, int]()
    for batch in batches:
        data = np.asarray([v or 0 for v in batch], dtype=np.int64)
        valid = np.asarray([v is not None for v in batch], dtype=np.uint8)
        found = index.encode(data, valid if not valid.all() else None)
        for value, ident in zip(batch, found.tolist()):
            assert seen.setdefault(value, ident) == ident
    assert len(set(seen.values())) == len(seen) == index.count
    for value, ident in seen.items():
        assert value is None or index.keys[ident] == value


def test_int_index_grows_far_beyond_its_first_size() -> None:
    values = np.random.default_rng(1).integers(0, 1 << 60, 200_000)
    index = IntIndex()
    found = index.encode(values)
    assert (index.keys[found] == values).all()
    assert index.count == len(np.unique(values))


def test_int_index_widens_its_table_until_values_lie_too_far_apart() -> None:
    pick, index, ids = np.random.default_rng(1), IntIndex(), dict[int, int]()
    for reach in (10, 1_000, 30_000, 400_000, 3_000_000, 1 << 62):
        values = pick.integers(-reach, reach, 5_000)
        for value, found in zip(values.tolist(), index.encode(values).tolist()):
            assert ids.setdefault(value, found) == found
    assert index.keys.tolist() == list(ids)


@given(st.lists(st.lists(st.one_of(st.none(), st.text(max_size=6)), max_size=20), max_size=4))
def test_string_index_keeps_every_string_apart(batches: list[list[str | None]]) -> None:
    index, seen = StringIndex(), dict[str, int]()
    for batch in batches:
        # A slice: offsets of an Arrow array need not start at nought.
        array = pa.array(["x", *batch], pa.string()).slice(1)
        for text, ident in zip(batch, index.encode(array).tolist()):
            assert (ident == -1) == (text is None)
            if text is not None:
                assert seen.setdefault(text, ident) == ident
    assert index.values().to_pylist() == list(seen)
    by_rank = sorted(seen, key=lambda t: index.rank[seen[t]])
    assert by_rank == sorted(seen, key=lambda t: t.encode())


def test_string_index_grows_far_beyond_its_first_size() -> None:
    texts = pa.array([f"key {i % 70_000} {'x' * (i % 9)}" for i in range(150_000)])
    index = StringIndex()
    assert index.decode(index.encode(texts)).equals(texts)


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, float("nan")])),
            st.one_of(st.none(), st.sampled_from(["", "a", "b"])),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_keys_of_several_columns_come_back(rows: list[tuple[float | None, str | None, bool]]) -> None:
    kinds = schema({"f": "float64", "s": "string", "b": "bool"})
    keys = KeyIndex(kinds)
    arrays = [pa.array([r[i] for r in rows], f.type) for i, f in enumerate(kinds.to_arrow())]
    ids = keys.encode(arrays)
    back = list(zip(*(c.to_pylist() for c in keys.decode(ids)))) if rows else []

    def plain(row: tuple[float | None, str | None, bool]) -> tuple[object, ...]:
        f = row[0]
        return ("nan" if f is not None and f != f else f if f is None else f + 0.0, *row[1:])

    assert [plain(r) for r in back] == [plain(r) for r in rows]
    assert len(set(ids.tolist())) == len({plain(r) for r in rows})
