"""What a live query says about itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemill.core.time import Domain, shown_instant
from tidemill.plan.disorder import REASONS


@dataclass(frozen=True)
class InputStats:
    """One input of a live query."""

    events: int
    """All rows that came."""
    late: int
    late_after_idle: int
    corrected: int
    """Late rows that count nevertheless, because rows that were given can be corrected."""
    within_lateness: int
    """Late rows that count nevertheless, in a query that answers on arrival."""
    null_time: int
    far_time: int
    null_attribute: int
    """Rows without a value of the `on=` of windows; they are left out of these."""
    far_attribute: int
    no_lifetime: int
    """Rows whose end is not after their start."""
    watermark: int
    """In ticks; `BEGINNING` while nothing is promised."""
    idle: bool
    domain: Domain

    @property
    def time(self) -> str:
        """The watermark as text."""
        return shown_instant(self.watermark, self.domain)


@dataclass(frozen=True)
class LiveStats:
    """Counts of a live query, since it began or since the one whose checkpoint it continues."""

    inputs: dict[str, InputStats]
    rows_out: int
    open_partials: int
    """Partials of windows that are not complete, by key and pane."""
    open_bytes: int
    before_start: int
    """Rows in no window because they lie before the start of all windows."""
    failed_callbacks: int
    seconds: float
    """The time that the query has worked."""
    by_operator: dict[str, float]
    """The part of it that each operator took."""
    tables: dict[str, int] = field(default_factory=dict)
    """The rows of each table."""
    refused: dict[str, int] = field(default_factory=dict)
    """The rows that operators could not use (`live.refused()`)."""

    @property
    def events(self) -> int:
        """All rows that came, of all inputs."""
        return sum(one.events for one in self.inputs.values())

    @property
    def late(self) -> int:
        """All late rows, of all inputs, also those that count nevertheless."""
        return sum(
            one.late + one.late_after_idle + one.corrected + one.within_lateness
            for one in self.inputs.values()
        )

    def __repr__(self) -> str:
        lines = [
            f"{self.events:,} events in, {self.late:,} late, {self.rows_out:,} rows out, "
            f"{self.seconds:.3f} s of work",
            f"open: {self.open_partials:,} partials, {self.open_bytes:,} bytes",
        ]
        if self.by_operator:
            shown = ", ".join(f"{name} {took:.3f} s" for name, took in self.by_operator.items())
            lines.append(f"work: {shown}")
        for name, one in self.inputs.items():
            parts = [f"{one.events:,} events", f"watermark {one.time}"]
            counted = [(reason, getattr(one, reason.replace(" ", "_"))) for reason in REASONS]
            parts += [f"{n:,} {reason}" for reason, n in counted if n]
            lines.append(f"{name}: {', '.join(parts)}{', idle' if one.idle else ''}")
        lines += [f"{name}: a table of {rows:,} rows" for name, rows in self.tables.items()]
        lines += [f"{rows:,} rows that {name} could not use" for name, rows in self.refused.items()]
        if self.before_start:
            lines.append(f"{self.before_start:,} rows before the start of all windows")
        if self.failed_callbacks:
            lines.append(f"{self.failed_callbacks:,} calls of subscribers failed")
        return "\n".join(lines)
