"""The pictures of live queries in `docs/benchmarks-live.md`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.harness import Result


def events_a_push(axes: Any, results: Sequence[Result]) -> bool:
    """Events a second against events a push: Figure 4(b) of paper 000."""
    points: dict[str, list[tuple[int, float]]] = {}
    for r in results:
        if r.group == "sweep":
            each = int(r.case.split("/")[1].split(" ")[0].replace(",", ""))
            for system, rate in r.measured["events/s"].items():
                points.setdefault(system, []).append((each, rate))
    for system, found in points.items():
        axes.plot(*zip(*found), marker="o", label=system)
    title = "Sum by 10 000 keys and 10 s (paper 000, Figure 4(b))"
    axes.set(xlabel="events a push", ylabel="events/s", title=title, xscale="log", yscale="log")
    axes.grid(alpha=0.3)
    if points:
        axes.legend()
    return bool(points)


def percentiles(axes: Any, results: Sequence[Result]) -> bool:
    """Latencies at a fixed rate, by percentile."""
    shown = ("p50 ms", "p99 ms", "p99.9 ms")
    chosen = [r for r in results if r.group == "paced"]
    for r in chosen:
        for system, p99 in r.seconds.items():
            found = {**{m: r.measured[m][system] for m in shown if m in r.measured}, "p99 ms": 1e3 * p99}
            label = f"{system}: {r.case.split('/')[1]}"
            axes.plot(range(len(shown)), [found[m] for m in shown], marker="o", label=label)
    axes.set_xticks(range(len(shown)), [m.removesuffix(" ms") for m in shown])
    axes.set(ylabel="ms", title="From arrival to result", yscale="log")
    axes.grid(alpha=0.3)
    if chosen:
        axes.legend(fontsize=7)
    return bool(chosen)
