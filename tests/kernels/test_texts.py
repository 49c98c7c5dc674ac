"""Texts by id, in a pool and in columns that are held, against Python's own."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from tidemill.kernels.functions import compare_text
from tidemill.kernels.texts import Texts

Column = list[str | None]


def column(pick: random.Random) -> pa.Array:
    """Strings of which many begin alike; some are null, and the array is a slice."""
    listed = [
        None if pick.random() < 0.1 else "same so far"[: pick.randint(0, 11)] + "".join(
            pick.choices("aäz\0\U0001f600\uffff", k=pick.randint(0, 9))
        )
        for _ in range(pick.randint(0, 30))
    ]  # fmt: skip
    start = pick.randint(0, len(listed))
    return pa.array(listed, pa.string()).slice(start, pick.randint(0, len(listed) - start))


def known(texts: Texts, pick: random.Random) -> tuple[np.ndarray, Column]:
    """Ids of the rows of some columns, and what they stand for."""
    ids, expected = [], Column()
    for _ in range(20):
        array = column(pick)
        if pick.random() < 0.5:
            found = texts.pool.encode(array)
        else:
            found = np.where(array.is_valid(), texts.hold(array) + np.arange(len(array)), -1)
        ids.append(found)
        expected += array.to_pylist()
    return np.concatenate(ids), expected


@pytest.mark.parametrize("seed", range(5))
def test_texts_are_compared_by_code_point(seed: int) -> None:
    pick = random.Random(seed)
    texts = Texts()
    ids, expected = known(texts, pick)
    there = [at for at, text in enumerate(expected) if text is not None]
    for _ in range(2_000):
        i, j = pick.choice(there), pick.choice(there)
        a, b = expected[i], expected[j]
        assert a is not None and b is not None
        assert compare_text(ids[i], ids[j], texts.table) == (a > b) - (a < b)


@pytest.mark.parametrize("seed", range(5))
def test_what_was_held_is_the_same_after_it_was_settled(seed: int) -> None:
    pick = random.Random(seed)
    texts = Texts()
    ids, expected = known(texts, pick)
    order = np.array(pick.sample(range(len(ids)), len(ids)))
    some, shuffled = ids[order], [expected[at] for at in order]
    decoded = texts.decode(some)
    decoded.validate(full=True)
    assert decoded.to_pylist() == shuffled
    records = np.zeros(len(some), dtype=[("pane", "i8"), ("text", "i8")])
    records["text"] = some
    texts.settle([records["text"], some[:7]])
    assert texts.held == 0 and records["text"].max() < texts.pool.count
    assert texts.decode(records["text"]).to_pylist() == shuffled
    more = texts.hold(pa.array(["new", "newer"]))
    assert texts.decode(np.array([more + 1, records["text"][0]])).to_pylist() == ["newer", shuffled[0]]


def test_nothing_and_columns_without_text() -> None:
    texts = Texts()
    for array in (pa.array([], pa.string()), pa.nulls(3, pa.string()), pa.array(["", ""])):
        texts.hold(array)
    assert texts.decode(np.empty(0, dtype=np.int64)).to_pylist() == []
    assert texts.decode(np.array([-1, -1])).to_pylist() == [None, None]


def test_many_columns_are_held_at_once() -> None:
    texts = Texts()
    firsts = [texts.hold(pa.array([f"{at}", "x"])) for at in range(100)]
    assert texts.decode(np.array(firsts)).to_pylist() == [f"{at}" for at in range(100)]
