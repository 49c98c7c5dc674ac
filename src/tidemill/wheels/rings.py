"""The rings of a wheel: the granularity and the number of slots of each."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Union

from tidemill.core.errors import UserError
from tidemill.core.time import Domain, DurationLike, duration

Retention = Union[str, int]
RingLike = Union[DurationLike, tuple[DurationLike, Retention]]

DEFAULT: tuple[RingLike, ...] = ("1s", "1m", "1h", "1d", "1w", ("52w", 10))
"""The rings of paper 001, section 3.4.1."""
MOST_RINGS = 24
"""A wheel has at most this many rings."""
MOST_SLOTS = 1 << 32
"""The most slots to keep as a number; a ring of seconds fills them in 136 years."""
LAST_SLOTS = 10
"""The default number of slots of the coarsest ring."""


@dataclass(frozen=True)
class Ring:
    """Slots of one length. `slots` is how many the ring keeps; None keeps all."""

    ticks: int
    slots: int | None
    shown: str

    @property
    def retention(self) -> str:
        return "all" if self.slots is None else str(self.slots)


def rings_of(
    given: Iterable[RingLike], retention: Retention | None = None, *, step: str = "wheel"
) -> tuple[tuple[Ring, ...], Domain]:
    """Read granularities, finest first: durations, or pairs of a duration and a retention.

    A retention is "drop" (as many slots as make one of the next ring), "keep" (all), or a number of
    slots; the argument is the default for rings without one.

    >>> rings, _ = rings_of(["1s", ("1m", "keep"), ("1h", 48)])
    >>> [(r.shown, r.retention) for r in rings]
    [('1s', '60'), ('1m', 'all'), ('1h', '48')]
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UserError(step, expected="a list of granularities, finest first", got=repr(given))
    default = "drop" if retention is None else retention
    pairs = [g if isinstance(g, tuple) else (g, default) for g in given]
    if wrong := [p for p in pairs if len(p) != 2]:
        raise UserError(step, expected="pairs of a granularity and a retention", got=repr(wrong[0]))
    if not 0 < len(pairs) <= MOST_RINGS:
        raise UserError(step, expected=f"1 to {MOST_RINGS} granularities", got=str(len(pairs)))
    lengths = [duration(g, step=step) for g, _ in pairs]
    domains = {d.domain for d in lengths}
    if len(domains) > 1:
        raise UserError(
            step, expected="granularities all in clock time, or all in logical time",
            got=", ".join(map(str, lengths)),
        )  # fmt: skip
    ticks = [d.ticks for d in lengths]
    if ticks[0] <= 0:
        raise UserError(step, expected="granularities above zero", got=str(lengths[0]))
    for i in range(1, len(ticks)):
        if ticks[i] <= ticks[i - 1] or ticks[i] % ticks[i - 1]:
            raise UserError(
                step, expected="each granularity to be a multiple of the one before",
                got=f"{lengths[i]} after {lengths[i - 1]}",
                hint="finest first, such as ['1s', '1m', '1h']",
            )  # fmt: skip
    ratios = [b // a for a, b in itertools.pairwise(ticks)]
    rings = []
    for i, ((_, kept), length) in enumerate(zip(pairs, lengths)):
        least = ratios[i] if i < len(ratios) else 1
        rings.append(Ring(length.ticks, _slots(kept, i, ratios, str(length), step), str(length)))
        slots = rings[-1].slots
        if slots is not None and slots < least:
            raise UserError(
                step, expected=f"at least {least} slots of {length}, which make one of the next ring",
                got=str(slots), hint='retention "drop" keeps just as many',
            )  # fmt: skip
    return tuple(rings), domains.pop()


def _slots(kept: Retention, at: int, ratios: Sequence[int], shown: str, step: str) -> int | None:
    if kept == "keep":
        return None
    if kept == "drop":
        return ratios[at] if at < len(ratios) else LAST_SLOTS
    if isinstance(kept, int) and not isinstance(kept, bool) and 0 < kept <= MOST_SLOTS:
        return kept
    raise UserError(
        f"{step}, ring {shown}",
        expected=f'retention "drop", "keep" or a number of slots, up to {MOST_SLOTS:,}', got=repr(kept),
    )  # fmt: skip
