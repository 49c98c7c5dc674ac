"""Agrees with the definition: the local engine against the reference, row by row."""

from __future__ import annotations

import functools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.cases import ARRIVAL, FAMILIES, ROWS, STREAM, TYPICAL, WINDOWS, Row, ask
from tests.conformance.harness import (
    arrivals, assert_same, by_reference, in_batches, locally, split,
)  # fmt: skip
from tidemill.stream import Stream

every_window = pytest.mark.parametrize("window", WINDOWS)
every_family = pytest.mark.parametrize("family", FAMILIES)


@every_family
@every_window
def test_every_window_and_family(window: str, family: str) -> None:
    query = ask(WINDOWS[window], family)
    assert_same(locally(query, TYPICAL), by_reference(query, TYPICAL), query.schema)


@every_window
@given(data=st.data(), rows=ROWS, family=st.sampled_from(list(FAMILIES)), pick=st.randoms())
@settings(max_examples=15)
def test_any_rows_in_any_order_and_split(
    window: str, data: Any, rows: list[Row], family: str, pick: random.Random
) -> None:
    query = ask(WINDOWS[window], family)
    expected = by_reference(query, rows)
    for order, arrived in arrivals(rows, "t", pick).items():
        got = in_batches(query, split(arrived, pick), promises=True)
        assert_same(got, expected, query.schema, order)
