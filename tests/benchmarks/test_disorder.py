"""Latency and accuracy of disordered streams: rows are as paper 003 defines them, and its findings hold."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.answers import Mismatch
from benchmarks.disorder.experiments import Ask, Given, as_defined, promised, with_slack
from benchmarks.disorder.streams import SECOND, Arrivals, blocks, bounded
from benchmarks.harness import Measured

MEAN, COUNT = Ask("mean", 16, 4), Ask("count", 60, 20)


def test_streams_have_the_disorder_that_they_are_named_after() -> None:
    late = bounded(100, 20)
    behind = np.maximum.accumulate(late.ts) - late.ts
    assert 0.01 < (behind > 0).mean() < 0.03 and behind.max() < 4 * SECOND
    assert (np.diff(late.at) >= 0).all() and (late.at >= late.ts).all()
    sent = blocks(200, 5, 50)
    number = sent.ts // (50 * SECOND)
    assert (np.diff(number) >= 0).all() and (np.diff(sent.ts) < 0).mean() > 0.4
    assert ((sent.at - sent.ts) > 0).all(), "no event comes before its time"


@pytest.mark.parametrize("stream", [bounded(60, 10), blocks(200, 2, 50)], ids=["bounded", "blocks"])
def test_sources_promise_only_what_they_keep(stream: Arrivals) -> None:
    promises = stream.promises(4 * SECOND)
    assert len(promises) > 2
    for before, below in promises:
        assert (stream.ts[before:] >= below).all()


def found(measured: Measured) -> dict[str, float]:
    as_defined({"tidemill": measured.answer})
    return {"latency": measured.seconds, **measured.measured}


def test_bounded_disorder_as_in_figure_9() -> None:
    stream = bounded(100, 20)
    right = found(promised(stream, MEAN))
    assert right["mean error %"] == right["late events %"] == 0
    results = {
        consistent: [found(with_slack(stream, MEAN, s, consistent=consistent)) for s in (0.32, 1.6, 3.2)]
        for consistent in (True, False)
    }
    for rows in results.values():
        assert sorted(rows, key=lambda r: r["latency"]) == rows, "latency grows with the slack"
        assert sorted(rows, key=lambda r: -r["mean error %"]) == rows, "the error falls"
    for consistent, generous in zip(*results.values()):
        assert consistent["latency"] == generous["latency"]
        assert generous["mean error %"] < consistent["mean error %"]
    assert right["latency"] < results[True][1]["latency"], "far below the bound of the disorder"


def test_blocks_as_in_figure_10() -> None:
    stream = blocks(600, 5, 50)
    right = found(promised(stream, COUNT))
    assert right["wrong rows %"] == 0
    short, enough, much = (found(with_slack(stream, COUNT, s, consistent=True)) for s in (40, 51, 75))
    assert short["wrong rows %"] > 90 and enough["wrong rows %"] == much["wrong rows %"] == 0
    assert right["latency"] <= enough["latency"] < much["latency"], "a jump above the length of a block"


def test_another_row_is_a_mismatch() -> None:
    measured = with_slack(bounded(100, 20), MEAN, 0.32, consistent=False)
    given = measured.answer
    assert isinstance(given, Given)
    x = given.rows["x"].to_numpy().copy()
    x[len(x) // 2] += 0.01
    changed = given.rows.set_column(given.rows.column_names.index("x"), "x", pa.array(x))
    with pytest.raises(Mismatch):
        as_defined({"tidemill": dataclasses.replace(given, rows=changed)})
