"""How many examples a property is tried on: a few in `make test`, many times as many in `make soak`."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

TIMES = int(os.environ.get("TIDEMILL_EXAMPLES", "1"))


def examples(count: int, **more: Any) -> settings:
    """Settings of a property that takes long: so many examples, and so many times as many in a soak."""
    return settings(max_examples=count * TIMES, deadline=None, **more)
