"""Tables of paper 000 (section 7.1), generated: GenData, a log of searches, and `lineitem` of TPC-H."""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import tidemill as tm
from benchmarks.data import Tables, tables
from benchmarks.exchange.data import tpch

T1, T2 = (tm.table(name, schema={"c1": "int64", "c2": "int64"}) for name in ("t1", "t2"))
LOG = tm.table("log", schema={"user": "int64", "phrase": "string", "clicks": "int64"})

_LINES = ("l_returnflag", "l_linestatus")
_NUMBERS = ("l_quantity", "l_extendedprice", "l_discount", "l_tax")
LINEITEM = tm.table("lineitem", schema=dict.fromkeys(_LINES, "string") | dict.fromkeys(_NUMBERS, "float64"))


@functools.lru_cache(maxsize=1)
def gen_data(n: int, d: int, m: int) -> Tables:
    """GenData(n, d, m): `n` and `m` rows, sorted by `c1`.

    In `t1`, `c1` and `c2` have the same `d` values, `c2` in random order. In `t2`, `c1` has these and others.
    """
    rng = np.random.default_rng(6)
    # The values lie apart: numbers from 0 to d would be a gift to a system that indexes by them.
    distinct = np.unique(rng.integers(0, 1 << 37, 2 * d))
    distinct = np.sort(rng.choice(distinct, d, replace=False))
    c1 = np.sort(rng.integers(0, d, n))
    t1 = pa.table({"c1": distinct[c1], "c2": distinct[rng.permutation(d)][rng.permutation(c1)]})
    others = rng.integers(1 << 37, 1 << 38, m - d)
    t2 = pa.table({"c1": np.sort(np.concatenate([distinct, others])), "c2": rng.integers(0, 1 << 37, m)})
    return tables({"t1": t1, "t2": t2}, {"t1": "c1", "t2": "c1"})


TERMS = 20_000
KNOWN = ("free", "vegas", "hotel", "download", "cheap", "music", "flights", "games")


@functools.lru_cache(maxsize=1)
def log(rows: int) -> Tables:
    """Searches of one to five words, whose frequency is one over their rank; one in 50 compares two words."""
    rng = np.random.default_rng(7)
    words = pa.array([*KNOWN, *(f"term{i}" for i in range(TERMS - len(KNOWN)))])
    ranks = np.exp(rng.random((rows, 5)) * np.log(TERMS)).astype(np.int64) - 1
    columns = [words.take(pa.array(ranks[:, i])) for i in range(5)]
    length = rng.integers(1, 6, rows)
    phrase = columns[0]
    for i in range(1, 5):
        longer = pc.binary_join_element_wise(phrase, columns[i], " ")
        phrase = pc.if_else(pa.array(length > i), longer, phrase)
    compared = pa.array(rng.random(rows) < 0.02)
    how = pa.array(np.where(rng.random(rows) < 0.5, " vs ", " versus "))
    versus = pc.binary_join_element_wise(columns[0], how, columns[1], "")
    table = pa.table({
        "user": rng.integers(0, max(1, rows // 20), rows), "phrase": pc.if_else(compared, versus, phrase),
        "clicks": rng.integers(0, 100, rows),
    })  # fmt: skip
    return tables({"log": table})


@functools.lru_cache(maxsize=1)
def lineitem(scale: float) -> Tables:
    """The columns of TPC-H's `lineitem` that Q1 reads."""
    folder = tpch(scale) / "lineitem"
    found = pq.read_table(folder, columns=[*_LINES, *_NUMBERS])
    text = [found[n].cast(pa.string()) for n in _LINES]
    numbers = [found[n].cast(pa.float64()) for n in _NUMBERS]
    return tables({"lineitem": pa.table(dict(zip((*_LINES, *_NUMBERS), (*text, *numbers)))).combine_chunks()})
