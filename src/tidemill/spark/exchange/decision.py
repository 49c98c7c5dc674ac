"""Whether an exchange detects, why, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from tidemill.core.errors import UserError
from tidemill.spark.exchange.detect import Detected
from tidemill.spark.exchange.keys import why_no_hash
from tidemill.spark.exchange.partitions import is_read_twice_alike
from tidemill.spark.exchange.units import Units

DETECT = ("auto", "on", "off")


@dataclass(frozen=True)
class Decision:
    """What was decided for one exchange, from which numbers."""

    step: str
    keys: tuple[str, ...]
    detects: bool
    why: str
    widths: tuple[float, ...] = (1.0, 1.0)
    """Bytes of a row of each side, about."""
    detected: Detected | None = None
    units: Units | None = None

    def with_detected(self, found: Detected, units: Units) -> Decision:
        return replace(self, detected=found, units=units)


def decide(step: str, frames: Sequence[DataFrame], keys: Sequence[str], detect: str, by: str) -> Decision:
    """Whether to detect: as the user says, unless equal keys could part; otherwise by the cost model."""
    if detect not in DETECT:
        raise UserError(step, expected=f"detect= one of {', '.join(DETECT)}", got=repr(detect))
    keys = tuple(keys)
    if detect == "off":
        return Decision(step, keys, False, "detect='off'")
    for df in frames:
        reason = why_no_hash(df, keys)
        if reason is None and not is_read_twice_alike(df):
            reason = "a second reading of the input might give other rows"
        if reason is not None:
            return Decision(step, keys, False, reason)
    if detect == "on":
        return Decision(step, keys, True, "detect='on'")
    return Decision(step, keys, False, "auto")


def noted(df: DataFrame, decision: Decision) -> DataFrame:
    """A result that `explain` and `report` can say something of."""
    df._tidemill_decision = decision  # type: ignore[attr-defined]
    return df


def decision_of(df: DataFrame) -> Decision:
    found = getattr(df, "_tidemill_decision", None)
    if not isinstance(found, Decision):
        raise UserError(
            "explain", expected="what an exchange of Tidemill returned", got="another DataFrame",
            hint="ask before selecting from it",
        )  # fmt: skip
    return found
