"""Figures 9 and 10 of paper 003."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.harness import Result

Point = tuple[float, float]


def figure_9(axes: Any, results: Sequence[Result]) -> bool:
    """Bounded disorder: mean error against latency."""
    title = "Figure 9: bounded disorder, mean over 64 s / 6.4 s"
    return _draw(axes, results, "bounded", "mean error %", title)


def figure_10(axes: Any, results: Sequence[Result]) -> bool:
    """Blocks: wrong rows against latency."""
    title = "Figure 10: blocks of 490 s, count over 600 s / 60 s"
    return _draw(axes, results, "blocks", "wrong rows %", title)


def _draw(axes: Any, results: Sequence[Result], group: str, error: str, title: str) -> bool:
    points: dict[str, list[Point]] = {}
    for r in results:
        if r.group == group:
            for system, latency in r.seconds.items():
                points.setdefault(system, []).append((latency, r.measured[error][system]))
    for system, found in points.items():
        axes.plot(*zip(*found), marker="o", linestyle="-" if len(found) > 1 else "none", label=system)
    axes.set(xlabel="latency (s of the stream)", ylabel=error, title=f"Paper 003, {title}")
    axes.grid(alpha=0.3)
    if points:
        axes.legend()
    return bool(points)
