"""One-pass evaluation of slide-by-tuple windows, as the paper defines it (003, 6.1, Figures 4–6)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidemill.core.errors import UserError
from tidemill.core.time import BEGINNING

X = TypeVar("X")
P = TypeVar("P")


@dataclass
class Bin(Generic[P]):
    """The partial of every window id from `wid` up to the next bin."""

    wid: int
    value: P
    tuples: int = 0  # tuples with exactly this time; 0 in a bin that is only an end
    rank: int = 0  # rank of the last of them in time order: the number of tuples at or below wid
    due: bool = False  # whether the row-num of one of them ends a window


class Bins(Generic[X, P]):
    """Partials of the windows `(w - range, w]` that end at tuples. The tuples themselves are not kept.

    A tuple at `s` opens two bins: *S* at `s`, the first window that contains it, and *E* at `s + range`, the
    first later window that does not. A new bin is split off the one before it. Then the tuple is combined
    into each bin in `[s, s + range)`. Tuples may arrive in any order, and `combine` must be commutative. Bins
    with the same `wid` have the same partial and are one bin, whether S, E or both.

    As in `per_event`, a window ends at each tuple, at every n-th by arrival (*row-num*), or at every
    n-th `by="rank"` of its time (6.1.3).

    >>> bins = Bins(10, lift=lambda x: x, combine=max, identity=lambda: 0)
    >>> for t, x in [(7, 3), (0, 5), (12, 1)]:
    ...     bins.insert(t, x)
    >>> bins.punctuate(8)
    [(0, 5), (7, 5)]
    >>> bins.punctuate(100)
    [(12, 3)]
    """

    def __init__(
        self,
        range: int,
        lift: Callable[[X], P],
        combine: Callable[[P, P], P],
        identity: Callable[[], P],
        *,
        every: int = 1,
        by: str = "arrival",
    ) -> None:
        self.range, self.lift, self.combine = range, lift, combine
        self.every, self.by = every, by
        self.watermark = BEGINNING
        self.row_num = 0
        self.bins = [Bin(BEGINNING, identity())]  # the paper's init, at minus infinity

    def insert(self, t: int, x: X) -> None:
        """Add a tuple. Tuples may arrive in any order, but not below a punctuation."""
        if t < self.watermark:
            raise UserError("bins", expected=f"no tuple below {self.watermark}", got=f"one at {t}")
        self.row_num += 1
        lifted = self.lift(x)
        start, end = self._split(t), self._split(t + self.range)
        self.bins[start].tuples += 1
        self.bins[start].due |= self.row_num % self.every == 0
        for bin in self.bins[start:end]:
            bin.value = self.combine(bin.value, lifted)
        for bin in self.bins[start:]:
            bin.rank += 1

    def punctuate(self, t: int) -> list[tuple[int, P]]:
        """Return ids and partials of the windows that end below `t`; no later tuple may be below `t`.

        The paper's *future values are greater than s* is `punctuate(s + 1)`.
        """
        below = self._place(t)
        done = [bin for bin in self.bins[:below] if bin.wid >= self.watermark]
        self.watermark = max(self.watermark, t)
        # Keep the last bin below t: the next new bin may be split off it.
        del self.bins[: max(below - 1, 0)]
        return [(bin.wid, bin.value) for bin in done if self._ends_window(bin)]

    def _ends_window(self, bin: Bin[P]) -> bool:
        if self.by == "rank":
            return bin.rank // self.every > (bin.rank - bin.tuples) // self.every
        return bin.due

    def _split(self, wid: int) -> int:
        """Return the position of the bin of `wid`; if there is none, split it off the bin before it."""
        place = self._place(wid)
        if place == len(self.bins) or self.bins[place].wid != wid:
            before = self.bins[place - 1]
            self.bins.insert(place, Bin(wid, before.value, rank=before.rank))
        return place

    def _place(self, wid: int) -> int:
        return bisect_left(self.bins, wid, key=lambda bin: bin.wid)
