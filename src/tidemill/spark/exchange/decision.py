"""Decide whether an exchange detects, and record the reason and the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from tidemill.core.errors import UserError
from tidemill.core.explanation import Explanation
from tidemill.spark.exchange.cost import COMPRESSED, Estimate, joined_at_best
from tidemill.spark.exchange.detect import Detected, Seen
from tidemill.spark.exchange.inputs import is_read_twice_alike, reads_only, row_count
from tidemill.spark.exchange.keys import row_bytes, why_no_hash
from tidemill.spark.exchange.network import Links, host_count
from tidemill.spark.exchange.network import links as links_of
from tidemill.spark.exchange.result_partitions import ResultPartitions
from tidemill.spark.private import is_connect, require_classic

DETECT = ("auto", "on", "off")
SAMPLE = 30_000
"""The approximate size of the key sample if all keys are distinct."""


@dataclass(frozen=True)
class Decision:
    """The decision for one exchange, the numbers behind it, and the results of detection."""

    step: str
    keys: tuple[str, ...]
    detects: bool
    why: str
    links: Links | None = None
    estimate: Estimate | None = None
    detected: Detected | None = None
    slots: ResultPartitions | None = None
    sample: int | None = None
    """If the decision is still open: the `sample` argument of `Keys`."""

    def judged(self, seen: Seen, slots: ResultPartitions, model: Model) -> Decision:
        """The final decision, based on the sampled keys."""
        if self.sample is None or self.links is None:
            return self
        estimate = model(seen, slots, self.links)
        why = "auto: it pays" if estimate.pays else "auto: it does not pay"
        return replace(self, detects=estimate.pays, why=why, estimate=estimate, sample=None)

    def with_detected(self, found: Detected, slots: ResultPartitions) -> Decision:
        return replace(self, detected=found, slots=slots)

    @property
    def numbers(self) -> dict[str, float]:
        return {} if self.detected is None else self.detected.numbers

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of each phase before rows are sent."""
        return {} if self.detected is None else self.detected.seconds

    def facts(self) -> list[tuple[str, str]]:
        """The numbers behind the decision and the results of detection, by name."""
        found = []
        if self.links is not None:
            rate = self.links.bytes_per_second * 8 / 1e6
            found.append(
                ("links", f"{self.links.hosts} hosts, {self.links.cores} cores, {rate:,.0f} Mbit/s")
            )
        if self.estimate is not None:
            found.append(("estimate", str(self.estimate)))
        if self.slots is not None:
            n = self.numbers
            entries = max(1, n.get("entries", 0))
            found += [
                ("rows, keys", f"{n['rows']:,.0f} rows, about {n['distinct']:,.0f} keys"),
                ("filter", f"{n['buckets']:,.0f} buckets, {n.get('code bits', 0) / entries:.2f} bits a key,"
                 f" {n.get('filter bytes', 0):,.0f} bytes, answers {n.get('answer bytes', 0):,.0f} bytes"),
                ("false positives", f"{n.get('filled', 0) / n['buckets']:.2%}: the share of buckets in use"),
                ("leave", f"{n['leaving']:,.0f} of {n['entries']:,.0f} keys of a partition,"
                 f" {n['leaving bytes'] / max(1.0, n['weight']):.1%} of the bytes"),
                ("slots", f"{self.slots}; the largest gets {n['largest share'] * self.slots.count:.2f}"
                 f" of a fair share"),
            ]  # fmt: skip
        for phase, seconds in self.seconds.items():
            found.append((phase, f"{seconds:.2f} s"))
        return found

    def __str__(self) -> str:
        how = "detects" if self.detects else "plain"
        first = f"{self.step} by {', '.join(self.keys)}: {how} — {self.why}"
        return "\n".join([first, *(f"  {name}: {text}" for name, text in self.facts())])


Model = Callable[[Seen, ResultPartitions, Links], Estimate]
AtBest = Callable[[float, float, Links], Estimate]


def decide(
    step: str, frames: Sequence[DataFrame], keys: Sequence[str], detect: str, *,
    width: Callable[[DataFrame], float] = row_bytes, best: AtBest = joined_at_best,
    why_not: Callable[[], str | None] = lambda: None,
) -> Decision:  # fmt: skip
    """Decide whether to detect: as the user says, if equal keys hash equally; for `auto`, if it might pay.

    For `auto`, `judged` makes the final decision when keys have been sampled. `width` returns the bytes sent
    for a row. `best` estimates detection for a number of bytes and rows if no row had to be sent. `why_not`
    may return a reason not to detect that does not depend on sizes.
    """
    if detect not in DETECT:
        raise UserError(step, expected=f"detect= one of {', '.join(DETECT)}", got=repr(detect))
    plain = Decision(step, tuple(keys), False, "detect='off'")
    if detect == "off":
        return plain
    spark = frames[0].sparkSession
    if detect == "on":
        require_classic(f"{step} with detect='on'", spark)
    elif (reason := why_plain(spark)) is not None:  # before anything that takes time
        return replace(plain, why=reason)
    for df in frames:
        reason = why_no_hash(df, keys)
        if reason is None and not is_read_twice_alike(df):
            reason = "a second reading of the input might give other rows"
        if reason is not None:
            return replace(plain, why=reason)
    if detect == "on":
        return replace(plain, detects=True, why="detect='on'")
    if not all(map(reads_only, frames)):
        return replace(plain, why="the input would be computed twice; cache it first to allow detection")
    reason = why_not()
    if reason is not None:
        return replace(plain, why=reason)
    links = links_of(spark)
    rows = [row_count(df) for df in frames]
    bytes = sum(COMPRESSED * n * width(df) for n, df in zip(rows, frames))
    estimate = best(bytes, sum(rows), links)
    found = replace(plain, links=links, estimate=estimate)
    if not estimate.may_pay:
        return replace(found, why="auto: it would not pay even if nothing had to be sent")
    sample = max(0, int(math.log2(max(1.0, sum(rows) / SAMPLE))))
    return replace(found, detects=True, why="auto: it may pay", sample=sample)


def why_plain(spark: SparkSession) -> str | None:
    """The reason why `auto` always runs the plain plan on this session; None if it does not."""
    if is_connect(spark):
        return "Spark Connect does not say where rows are; a classic session does"
    return "all is on one host" if host_count(spark) < 2 else None


def outlook(spark: SparkSession, detect: str) -> str:
    """Describe the plan of an exchange, as far as it is known without the input."""
    if detect == "off":
        return "plain — detect='off'"
    if detect == "on":
        return "detects — detect='on'"
    reason = why_plain(spark)
    if reason is not None:
        return f"plain — {reason}"
    return "plain or detecting — detect='auto' decides by the size of the input, then by a sample of its keys"


_watchers: ContextVar[tuple[list[Decision], ...]] = ContextVar("watchers", default=())


@contextmanager
def watched(into: list[Decision]) -> Iterator[None]:
    """Collect the decisions of a `with` block in a list."""
    token = _watchers.set((*_watchers.get(), into))
    try:
        yield
    finally:
        _watchers.reset(token)


def noted(df: DataFrame, decision: Decision) -> DataFrame:
    """Attach a decision to a result, for `explain`, and add it to reports."""
    df._tidemill_decision = decision  # type: ignore[attr-defined]
    tell(decision)
    return df


def tell(decision: Decision) -> None:
    """Add a decision to the reports of all enclosing blocks."""
    for into in _watchers.get():
        into.append(decision)


def decision_of(df: DataFrame) -> Decision:
    """The decision that is attached to the result of an exchange."""
    found = getattr(df, "_tidemill_decision", None)
    if not isinstance(found, Decision):
        raise UserError(
            "explain", expected="a DataFrame returned by an exchange of Tidemill", got="another DataFrame",
            hint="call explain before you transform the result",
        )  # fmt: skip
    return found


def explain(df: DataFrame) -> Explanation:
    """Explain why an exchange detected or not, with the numbers behind the decision."""
    return Explanation({"exchange": str(decision_of(df))})
