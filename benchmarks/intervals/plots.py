"""The pictures of the benchmark of interval joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.harness import HOME, Result
from benchmarks.registry import Draw

DEFAULT = "sweep/default"
"""The case from which each sweep goes on."""


def sweeps(of: str) -> Draw:
    """Tuples a second against the number of keys, the lateness or the window (Figures 11, 13 and 16)."""
    marks = {"keys": "keys", "lateness": "lateness ×", "window": "window ×"}
    column = {"keys": "keys", "lateness": "lateness µs", "window": "window µs"}[of]

    def draw(axes: Any, results: Sequence[Result]) -> bool:
        chosen = [r for r in results if r.case.startswith("sweep/") and marks[of] in r.case]
        if not chosen:
            return False
        chosen += [r for r in results if r.case == DEFAULT]
        chosen.sort(key=lambda r: r.params[column])
        for system in chosen[0].seconds:
            points = [(r.params[column], r.measured["million tuples/s"][system]) for r in chosen]
            axes.plot(*zip(*points), marker="o", label=system)
        title = f"Requests answered on arrival, by {column}"
        axes.set(xlabel=column, ylabel="million tuples/s", title=title, xscale="log", yscale="log")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
        return True

    return draw


def latencies(axes: Any, results: Sequence[Result]) -> bool:
    """The share of requests that were answered in so many milliseconds (Figures 17 to 20)."""
    chosen = [r for r in results if r.group == "latency"]
    for r in chosen:
        for system in r.seconds:
            points = sorted(
                (found[system], float(name[1:].split(" ")[0]))
                for name, found in r.measured.items()
                if name.startswith("p") and name.endswith(" ms")
            )
            style = "-" if system == HOME else "--"
            axes.plot(*zip(*points), style, label=f"{system}, {r.case.split('/')[1]}")
    if not chosen:
        return False
    axes.set(xlabel="ms", ylabel="% of requests", title="From a request to its answer", xscale="log")
    axes.axvline(20.0, color="green", linestyle=":", linewidth=0.8)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    return True
