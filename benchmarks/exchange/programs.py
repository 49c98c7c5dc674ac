"""The five programs of paper 002, section 3.4: what each reads, and who answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.exchange import data, ours, plain
from benchmarks.exchange.plain import Answer, Tables

System = Callable[[Tables], Answer]


@dataclass(frozen=True)
class Program:
    """One question about some tables, and the systems that answer it."""

    title: str
    params: Mapping[str, Any]
    folders: Callable[[], Mapping[str, Path]]
    """Where the tables are, by name. They are made when they are asked for."""
    systems: Mapping[str, System]


@dataclass(frozen=True)
class Sizes:
    words: int
    pages: int
    steps: int
    scale: float
    pairs: int
    vertices: int


# So large that 100 Mbit/s are felt, and that all systems, hosts and rates take less than an hour.
FULL = Sizes(words=8_000_000, pages=1 << 17, steps=10, scale=0.5, pairs=16_000_000, vertices=1 << 14)
QUICK = Sizes(
    words=1_000_000, pages=1 << 14, steps=2, scale=0.02, pairs=1_000_000, vertices=1 << 12
)


def programs(size: Sizes) -> dict[str, Program]:
    return {
        "tpch": Program(
            "TPC-H: all orders with all their lines (Algorithm 2)",
            {"scale": size.scale},
            partial(_tpch, size.scale),
            _systems(plain.orders_with_lines, ours.orders_with_lines, filtered=False),
        ),
        "tpch 4": Program(
            "TPC-H, query 4: orders of a quarter with their late lines",
            {"scale": size.scale},
            partial(_tpch, size.scale),
            _systems(plain.orders_with_lines, ours.orders_with_lines, filtered=True),
        ),
        "median": Program(
            "The median of each key (Algorithm 3)",
            {"pairs": size.pairs},
            lambda: {"pairs": data.pairs(size.pairs)},
            _systems(plain.medians, ours.medians),
        ),
        "median lists": Program(
            "The median of each key, from sorted lists",
            {"pairs": size.pairs},
            lambda: {"pairs": data.pairs(size.pairs)},
            _systems(plain.medians_by_lists, ours.medians_by_lists),
        ),
        "words": Program(
            "WordCount",
            {"words": size.words},
            lambda: {"text": data.text(size.words)},
            _systems(plain.word_count, ours.word_count),
        ),
        "ranks": Program(
            "PageRank on a graph like that of the web (Algorithm 1)",
            {"pages": size.pages, "steps": size.steps},
            lambda: {"web": data.web(size.pages)},
            _systems(plain.page_rank, ours.page_rank, pages=size.pages, steps=size.steps),
        ),
        "triangles": Program(
            "Triangles of a random graph (Algorithm 4)",
            {"vertices": size.vertices},
            lambda: {"edges": data.random_graph(size.vertices)},
            _systems(plain.triangles, ours.triangles),
        ),
    }


def _systems(spark: Callable[..., Answer], own: Callable[..., Answer], **more: Any) -> dict[str, System]:
    """Tidemill as it decides, told to detect and told not to; and plain Spark."""
    found: dict[str, System] = {
        name: partial(own, detect=detect, **more) for name, detect in ours.DETECT.items()
    }
    return found | {"spark": partial(spark, **more)}


def _tpch(scale: float) -> Mapping[str, Path]:
    folder = data.tpch(scale)
    return {name: folder / name for name in ("orders", "lineitem")}
