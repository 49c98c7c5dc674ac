"""Batches on threads keep their order, also where they go through one chain after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

import tidemill as tm
from tests.conformance.temporal import assert_rows, by_reference, in_process
from tidemill.local.spray import Chain, Spray

ROWS = pa.record_batch({"t": [1]})


def test_a_watermark_waits_for_the_second_chain_of_a_batch() -> None:
    spray, said = Spray(2, 0), []
    once = Chain((lambda batch: [batch],), "step")

    def first(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        said.append("first")
        for batch in batches:
            spray.start(once, batch, second)
        yield from spray.done()

    def second(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        said.append("second")
        return batches

    def watermark(_: list[pa.RecordBatch]) -> tuple[()]:
        said.append("watermark")
        return ()

    try:
        for _ in range(2):
            spray.start(once, ROWS, first)
            spray.after(watermark)
        assert len(list(spray.done(all_=True))) == 2
    finally:
        spray.close()
    assert said == ["first", "second", "watermark"] * 2


def test_a_stream_that_is_read_by_two_ways() -> None:
    p = tm.stream("p", time="t", schema={"t": "int64", "k": "int64", "v": "int64"})
    ends = p.at_end().select("k", "v")
    query = ends.at_end().join(ends.until_next("v"), on={"k": "v"})
    rows = {"p": [*({"t": 0, "k": 1, "v": 1} for _ in range(4)), {"t": 1, "k": 1, "v": 1}]}
    assert_rows(in_process(query, rows), by_reference(query, rows), "on two threads")
