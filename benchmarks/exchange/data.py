"""What the five programs of paper 002 read: Parquet parts, made once and kept under `out/exchange`.

Nearness is as in real data: what belongs together was written together, so it is in one part. Where nothing
belongs together, as in the random graph, nothing is near.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.machine import ROOT
from examples.medians import FOR_EACH_KEY
from examples.orders import generate

KEPT = ROOT / "out" / "exchange"
PARTS = 8
"""Parts of every table: as many for each host, with 2, 4 or 8 of them."""
SEED = 2


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of that name, which `make` fills when it is not there. A run that ends leaves no half."""
    path = KEPT / name
    if path.exists():
        return path
    temporary = KEPT / f".{name}.{os.getpid()}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        make(temporary)
        if not path.exists():  # another run may have been faster
            temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return path


def _write(folder: Path, part: int, table: pa.Table) -> None:
    rows = max(1, -(-table.num_rows // 4))
    pq.write_table(table, folder / f"part-{part}.parquet", row_group_size=rows)


# --- text -----------------------------------------------------------------------------------------

VOCABULARY = 10**8
COMMON = 50_000
"""Words that are as frequent everywhere. Of the others, most are of a site: its names, its subjects."""
OWN, OWN_SHARE = 5_000, 0.7
SITE_WORDS = 50_000
LINE = 12


def text(words: int) -> Path:
    """Lines of words whose frequency is about one over their rank; documents of a site are in one part."""
    return kept(f"text-{words}", lambda folder: _text(folder, words))


def _text(folder: Path, words: int) -> None:
    share = words // PARTS // LINE * LINE
    for part in range(PARTS):
        rng = np.random.default_rng([SEED, 1, part])
        rank = np.exp(rng.random(share) * np.log(VOCABULARY)).astype(np.int64)
        site = part * (share // SITE_WORDS + 1) + np.arange(share) // SITE_WORDS
        own = (rank > COMMON) & (rng.random(share) < OWN_SHARE)
        ids = np.where(own, VOCABULARY + site * OWN + rank % OWN, rank)
        unique, place = np.unique(ids, return_inverse=True)
        offsets = np.arange(0, share + 1, LINE, dtype=np.int32)
        lists = pa.ListArray.from_arrays(offsets, _words(unique).take(pa.array(place)))
        _write(folder, part, pa.table({"line": pc.binary_join(lists, " ")}))


def _words(ids: np.ndarray) -> pa.Array:
    """A word of syllables for each number; small numbers have short words.

    >>> _words(np.array([0, 7, 100, 12_345])).to_pylist()
    ['ba', 'ci', 'caba', 'cafola']
    """
    syllables = pa.array([c + v for c in "bcdfghjklmnprstvwxyz" for v in "aeiou"] + [""])
    found = [syllables.take(pa.array(ids % 100))]
    for power in range(1, 6):
        rest = ids // 100**power
        found.insert(0, syllables.take(pa.array(np.where(rest > 0, rest % 100, 100))))
    return pc.binary_join_element_wise(*found, "")


# --- graphs ---------------------------------------------------------------------------------------

SITE = 512
DEGREE = 25
INSIDE = 0.85
"""The share of links that stay within their site, as in graphs of the web."""


def web(pages: int) -> Path:
    """Pages with their links. Degrees follow a power law both ways; the pages of a site are in one part.

    Every page has a link from its neighbour, so none is without rank after a step.
    """
    return kept(f"web-{pages}", lambda folder: _web(folder, pages))


def _web(folder: Path, pages: int) -> None:
    share = pages // PARTS
    assert share % SITE == 0, f"pages of a part are whole sites of {SITE}"
    for part in range(PARTS):
        rng = np.random.default_rng([SEED, 2, part])
        page = part * share + np.arange(share)
        # Pareto with exponent 2, cut off where one page would outweigh a site.
        degree = np.minimum(DEGREE / 2 * (1 + rng.pareto(2, share)), 4 * SITE).astype(np.int64)
        source = np.repeat(page, degree)
        inside = rng.random(len(source)) < INSIDE
        popular = rng.random(len(source)) ** 3
        near = source // SITE * SITE + (popular * SITE).astype(np.int64)
        # Elsewhere it is the first pages of sites that are known.
        far = rng.integers(0, pages // SITE, len(source)) * SITE + (popular * SITE).astype(np.int64)
        first = page // SITE * SITE
        pairs = np.concatenate(
            [source * pages + np.where(inside, near, far), page * pages + first + (page + 1) % SITE]
        )
        pairs = np.unique(pairs)
        source, target = pairs // pages, pairs % pages
        counts = np.bincount(source - page[0], minlength=share)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        _write(
            folder,
            part,
            pa.table({"page": page, "outs": pa.ListArray.from_arrays(offsets, target)}),
        )


def random_graph(vertices: int, degree: int = 40) -> Path:
    """Edges from the lower vertex to the higher, in the order of the lower; any two are as likely."""
    return kept(
        f"random-{vertices}-{degree}", lambda folder: _random_graph(folder, vertices, degree)
    )


def _random_graph(folder: Path, vertices: int, degree: int) -> None:
    rng = np.random.default_rng([SEED, 3])
    one, two = rng.integers(0, vertices, (2, vertices * degree // 2))
    edges = np.unique(np.minimum(one, two) * vertices + np.maximum(one, two))
    edges = edges[edges // vertices != edges % vertices]
    # A vertex has all its edges in one part, as in the paper's file of lines.
    cuts = np.searchsorted(edges // vertices, np.arange(1, PARTS) * vertices // PARTS)
    for part, found in enumerate(np.split(edges, cuts)):
        _write(folder, part, pa.table({"s": found // vertices, "t": found % vertices}))


# --- pairs and orders -----------------------------------------------------------------------------

def pairs(count: int) -> Path:
    """Algorithm 3: 128 pairs for each key, following each other.

    Values are random: the paper counts them up, and Spark, unlike Thrill, would compress that away.
    """
    return kept(f"pairs62-{count}", lambda folder: _pairs(folder, count))


def _pairs(folder: Path, count: int) -> None:
    share = count // PARTS // FOR_EACH_KEY * FOR_EACH_KEY
    for part in range(PARTS):
        rng = np.random.default_rng([SEED, 4, part])
        key = (part * share + np.arange(share)) // FOR_EACH_KEY
        _write(folder, part, pa.table({"k": key, "v": rng.integers(0, 1 << 62, share)}))


def tpch(scale: float) -> Path:
    """`orders` and `lineitem` of TPC-H; part i of both is about the same orders."""
    return kept(f"tpch-{scale}", lambda folder: _tpch(folder, scale))


def _tpch(folder: Path, scale: float) -> None:
    generate(folder, scale, PARTS)
    for table in ("orders", "lineitem"):
        for part in range(PARTS):
            (folder / table / f"{table}.{part + 1}.parquet").rename(
                folder / table / f"part-{part}.parquet"
            )
