"""The streams that stand for those of paper 001, section 4.2, have their rates and their disorder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.wheels.data import SECOND, sensor, trips


@pytest.mark.parametrize(
    ("stream", "rate", "disorder"), [(sensor, 100.0, 0.015), (trips, 0.61, 0.4576)], ids=["DEBS12", "bikes"]
)
def test_rate_and_disorder(stream: Callable[[int], Any], rate: float, disorder: float) -> None:
    ts = np.asarray(stream(100_000)["ts"].cast(pa.int64()))
    span = (ts.max() - ts.min()) / SECOND
    assert len(ts) / span == pytest.approx(rate, rel=0.02)
    overtaken = ts < np.maximum.accumulate(ts)
    assert overtaken.mean() == pytest.approx(disorder, rel=0.06)


def test_trips_come_in_bursts() -> None:
    ts = np.sort(np.asarray(trips(100_000)["ts"].cast(pa.int64())))
    gaps = np.diff(ts) / SECOND
    assert np.median(gaps) < 0.5 and np.quantile(gaps, 0.99) > 20
