"""The pictures of `docs/benchmarks.md`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.harness import Result


def process(axes: Any, results: Sequence[Result]) -> bool:
    """How many times as long as Tidemill others take, for each in-process case."""
    return _against_peers(axes, results, "process", "In process")


def shapes(axes: Any, results: Sequence[Result]) -> bool:
    """The same for many shapes of keys and windows."""
    return _against_peers(axes, results, "shapes", "Many shapes in process")


def _against_peers(axes: Any, results: Sequence[Result], group: str, title: str) -> bool:
    chosen = [r for r in results if r.group == group]
    if not chosen:
        return False
    peers = ("duckdb", "polars")
    for i, peer in enumerate(peers):
        at = [y + 0.4 * (i - 0.5) for y in range(len(chosen))]
        axes.barh(at, [r.ratio[peer] for r in chosen], height=0.38, label=peer)
    axes.set_yticks(range(len(chosen)), [r.case.split("/", 1)[1] for r in chosen], fontsize=8)
    axes.invert_yaxis()
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set(xscale="log", xlabel="time / Tidemill's time", title=title)
    axes.legend()
    return True


def overlap(axes: Any, results: Sequence[Result]) -> bool:
    """Seconds against range/slide in process."""
    return _by_overlap(axes, results, "process", "In process, hopping sum")


def spark(axes: Any, results: Sequence[Result]) -> bool:
    """Seconds against range/slide on Spark."""
    return _by_overlap(axes, results, "spark", "Spark batch, hopping sum")


def figure_8(axes: Any, results: Sequence[Result]) -> bool:
    """Figure 8 of paper 003: execution time against the slide."""
    points = [(r.params["slide"], r) for r in results if r.group == "paper 003"]
    _lines(axes, points)
    title = "Paper 003, Figure 8: max over 4000 rows"
    axes.set(xlabel="slide (rows)", ylabel="milliseconds", title=title, xscale="log", yscale="log")
    return bool(points)


def _by_overlap(axes: Any, results: Sequence[Result], group: str, title: str) -> bool:
    mark = f"{group}/hopping sum, range/slide "
    points = [(int(r.case[len(mark) :]), r) for r in results if r.case.startswith(mark)]
    _lines(axes, points)
    axes.set(xlabel="range/slide", ylabel="milliseconds", title=title, xscale="log", yscale="log")
    return bool(points)


def _lines(axes: Any, points: Sequence[tuple[int, Result]]) -> None:
    for system in dict.fromkeys(s for _, r in points for s in r.seconds):
        known = [(x, 1000 * r.seconds[system]) for x, r in points if system in r.seconds]
        axes.plot(*zip(*known), marker="o", label=system)
    if points:
        axes.legend()
    axes.grid(alpha=0.3)
