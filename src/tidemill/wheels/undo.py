"""A wheel as it was before rows went in, apart from its slots: see `wheels.undo`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tidemill.core.errors import UserError
from tidemill.kernels.keys import KeyIndex

if TYPE_CHECKING:
    from tidemill.wheels.wheel import Wheel

UNDER_WAY = UserError("insert", "rows are going in, and are not all in yet")
"""Why a wheel takes nothing else meanwhile. It stays so where taking them out again is interrupted, too."""


class Undo:
    """Counts, late rows, rows ahead and keys of a wheel when this was made."""

    def __init__(self, wheel: Wheel) -> None:
        self._wheel = wheel
        self._inserted, self._left_out = wheel._inserted, dict(wheel._left_out)
        self._late = len(wheel._late), wheel._late_kept
        self._early = wheel._early.state
        self._keys = wheel._keys.count

    def roll_back(self, cause: BaseException) -> None:
        """Have them as they were, whatever it was that failed."""
        wheel = self._wheel
        wheel._inserted, wheel._left_out = self._inserted, self._left_out
        del wheel._late[self._late[0] :]
        wheel._late_kept = self._late[1]
        wheel._early.cut_back(*self._early)
        # What comes from outside, as Ctrl-C does, may have come while keys were added.
        if wheel._keyed and (wheel._keys.count != self._keys or not isinstance(cause, UserError)):
            keys = KeyIndex(wheel._keys.schema)
            if self._keys:
                keys.restore(wheel._keys.decode(np.arange(self._keys)))
            wheel._store.forget(self._keys)
            with wheel._lock:  # windows and others have the same object
                wheel._keys.__dict__.update(keys.__dict__)
                wheel._numbers_seen.clear()
