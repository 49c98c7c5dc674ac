"""Record which partials of a store change, so that a checkpoint need not write the others again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidemill.core.time import FOREVER

Ints = npt.NDArray[np.int64]
FIRST, LAST = -FOREVER, FOREVER
"""Panes before and after all others."""


class Marks:
    """The keys that changed, and the range of panes in which they did.

    A partial of a marked key in a marked pane may have changed, or may be new or gone; all others are as they
    were, except those that were evicted. With `all_panes` the range is not recorded, because panes of a key
    are merged, or evicted one by one.

    >>> marks = Marks(all_panes=False)
    >>> marks.touch(np.array([4, 1, 4]), 7, 9)
    >>> marks.touch(np.array([2]), 8, 12)
    >>> marks.keys, marks.first, marks.last
    (array([1, 2, 4]), 7, 12)
    """

    def __init__(self, *, all_panes: bool) -> None:
        self.first, self.last = (FIRST, LAST) if all_panes else (LAST, FIRST)
        self.evicted = False
        """Whether partials were evicted that no window needs any more."""
        self._all_panes = all_panes
        self._touched = np.zeros(0, dtype=np.bool_)

    def touch(self, kid: Ints, first: int, last: int) -> None:
        """Record that partials of keys may have changed, in panes from `first` to `last`."""
        if not len(kid):
            return
        top = int(kid.max())
        if top >= len(self._touched):
            more = np.zeros(max(top + 1, 2 * len(self._touched)), dtype=np.bool_)
            more[: len(self._touched)] = self._touched
            self._touched = more
        self._touched[kid] = True
        self.first, self.last = min(self.first, first), max(self.last, last)

    def evict(self, kid: Ints) -> None:
        """Record that partials of keys were evicted."""
        self.evicted |= len(kid) > 0
        if self._all_panes:
            self.touch(kid, FIRST, LAST)

    @property
    def keys(self) -> Ints:
        """The keys that changed."""
        return np.flatnonzero(self._touched)

    def covered(self, kid: Ints, pane: Ints) -> Ints:
        """Return the places of the partials that may have changed."""
        places = np.flatnonzero((pane >= self.first) & (pane <= self.last))
        keys = kid[places]
        places, keys = places[keys < len(self._touched)], keys[keys < len(self._touched)]
        return places[self._touched[keys]]
