"""What `make test` has a sample of, and `make soak` has all: examples of properties, values of parameters."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings

TIMES = int(os.environ.get("TIDEMILL_EXAMPLES", "1"))


def examples(count: int, *, of: int | None = None, **more: Any) -> settings:
    """Settings of a property that takes long: so many examples, and so many times as many in a soak.

    With `of`, `make test` has `count` examples of it, and a soak so many times `of`.
    """
    most = (of or count) * TIMES if TIMES > 1 else count
    return settings(max_examples=most, deadline=None, **more)


def later(*values: Any) -> list[Any]:
    """Values of a parameter, or tuples of values of several, that are for the soak."""
    return [pytest.param(*(v if isinstance(v, tuple) else (v,)), marks=pytest.mark.soak) for v in values]
