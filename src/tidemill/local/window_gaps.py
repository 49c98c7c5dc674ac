"""Skip rows in the gaps between windows that are shorter than their slide."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.time import FARTHEST
from tidemill.kernels.arrow import validity, values
from tidemill.plan.nodes import WindowAggregate
from tidemill.windows.spec import GridWindow


def has_gaps(plan: WindowAggregate) -> bool:
    """Return whether some instants are in no window, wherever the stream begins.

    Filled windows need all rows, because they continue until the last row.
    """
    return all(
        isinstance(s, GridWindow) and s.length is not None and s.length < s.slide and not s.until_end
        for s in (w.spec for w in plan.windows)
    )


def in_windows(plan: WindowAggregate, attribute: pa.Array) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows to read: in a window, before the start, or with an invalid attribute."""
    t = values(attribute)
    kept = (t < -FARTHEST) | (t > FARTHEST)
    valid = validity(attribute)
    if valid is not None:
        kept |= valid == 0
    for window in plan.windows:
        spec = window.spec
        assert isinstance(spec, GridWindow) and spec.length is not None
        with np.errstate(over="ignore"):
            inside = (t - spec.origin) % spec.slide >= spec.slide - spec.length
        kept |= inside if spec.start is None else inside & (t >= spec.start)
    return kept if plan.start is None else kept | (t < plan.start)
