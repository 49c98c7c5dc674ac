"""Report the bytes that exchanges moved, by Spark's metrics, and an estimate without detection."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from tidemill.core.explanation import Explanation
from tidemill.spark.exchange.decision import Decision, watched
from tidemill.spark.exchange.network import host_count
from tidemill.spark.exchange.traffic import Traffic, readable_size, traffic
from tidemill.spark.private import require_classic


@dataclass(repr=False)
class Report(Explanation):
    """The exchanges of a `with` block; traffic and seconds are filled in when it ends."""

    exchanges: list[Decision] = field(default_factory=list)
    traffic: Traffic = field(default_factory=Traffic)
    seconds: float = 0.0
    hosts: int = 1

    @property
    def filter_bytes(self) -> int:
        """Bytes of the filters (sets of buckets) and of the answers to them."""
        return int(
            sum(
                d.numbers.get(n, 0)
                for d in self.exchanges
                for n in ("filter bytes", "answer bytes")
            )
        )

    @property
    def travelled(self) -> int:
        """Bytes sent between hosts."""
        return self.traffic.remote_bytes

    @property
    def would_have_travelled(self) -> int:
        """An estimate of the bytes that hash shuffles would have sent between hosts: `(hosts − 1) / hosts` of
        all bytes, scaled by the bytes that were actually shuffled."""
        if not any(d.detects for d in self.exchanges):
            return self.travelled
        shuffled = max(0, self.traffic.remote_bytes + self.traffic.local_bytes - self.filter_bytes)
        weight = sum(d.numbers.get("weight", 0) for d in self.exchanges)
        sent = sum(d.numbers.get("leaving bytes", 0) for d in self.exchanges)
        # Row widths are guessed from types; if enough rows were sent, their bytes correct the guess.
        scale = shuffled / sent if sent > 0.01 * weight else 1.0
        return int(weight * scale * (self.hosts - 1) / self.hosts)

    def rows(self) -> list[tuple[str, str]]:
        """The lines of the report, as names and texts."""
        found: list[tuple[str, str]] = []
        for decision in self.exchanges:
            found.append(
                (decision.step, f"{'detects' if decision.detects else 'plain'}: {decision.why}")
            )
            found += [(f"  {name}", text) for name, text in decision.facts()]
        found += [
            ("would have travelled", f"{readable_size(self.would_have_travelled)}, about"),
            ("did travel", readable_size(self.travelled)),
            ("filters and answers", f"{readable_size(self.filter_bytes)}, between hosts or on them"),
            ("read on the same host", readable_size(self.traffic.local_bytes)),
            ("seconds", f"{self.seconds:.2f} on {self.hosts} hosts"),
        ]
        return found

    @property
    def sections(self) -> dict[str, str]:
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        return {"exchanges": "\n".join(f"{name:<{width}}  {text}" for name, text in rows)}

    def plot(self) -> Any:
        """Plot the bytes as bars, and the seconds of each phase, in a `matplotlib` figure."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 3), layout="constrained")
        left, right = figure.subplots(1, 2)
        bytes_of = {
            "would have\ntravelled": self.would_have_travelled,
            "did\ntravel": self.travelled,
            "filters and\nanswers": self.filter_bytes,
        }
        heights = [b / 1e6 for b in bytes_of.values()]
        left.bar(list(bytes_of), heights, color=["#999999", "#2a6f97", "#e09f3e"])
        left.set_ylabel("MB")
        begin = 0.0
        for name, seconds in self.phases().items():
            right.barh([0], [seconds], left=begin, label=name)
            begin += seconds
        right.set_yticks([])
        right.set_xlabel("seconds")
        right.legend(fontsize="small")
        return figure

    def phases(self) -> dict[str, float]:
        """Seconds of each phase, summed over all exchanges; "rows" is the rest: the shuffle and the query."""
        found: dict[str, float] = {}
        for decision in self.exchanges:
            for name, seconds in decision.seconds.items():
                found[name] = found.get(name, 0.0) + seconds
        return found | {"rows": max(0.0, self.seconds - sum(found.values()))}


@contextmanager
def report(spark: SparkSession) -> Iterator[Report]:
    """Record the exchanges of a `with` block, and the bytes that Spark moved for them.

    Example::

        with report(spark) as seen:
            join(orders, lines, ["order"]).count()
        print(seen)
    """
    require_classic("report", spark)
    seen = Report(hosts=host_count(spark))
    began = time.monotonic()
    with traffic(spark) as moved, watched(seen.exchanges):
        yield seen
    seen.seconds, seen.traffic = time.monotonic() - began, moved
