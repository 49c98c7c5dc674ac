"""Run a query over inputs as they are stored, with the policies of live queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.forks import in_one_process
from tidemill.core.time import BEGINNING
from tidemill.io.progress import shown
from tidemill.io.sources import open_source
from tidemill.io.window_source import WindowSource
from tidemill.local.live import Live
from tidemill.local.run import AS_THEY_COME
from tidemill.plan.disorder import REASONS
from tidemill.plan.faults import check_inputs
from tidemill.plan.nodes import Plan, Source, leaves_of


def run_live(
    plan: Plan, inputs: Mapping[str, Any], live: Live, *, progress: bool = False,
    counts: dict[str, int] | None = None,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """Push all rows of the inputs into a live query, and return its result batch by batch.

    Of several inputs, the one whose greatest time is the lowest is read next. After the last batch, `counts`
    has the number of late rows by reason, and the number of rows before the start of all windows.
    """
    yield from in_one_process(_run(plan, inputs, live, progress, counts), "run")


def _run(
    plan: Plan, inputs: Mapping[str, Any], live: Live, progress: bool, counts: dict[str, int] | None
) -> Iterator[pa.RecordBatch]:
    check_inputs(plan, inputs)
    chunks = {}
    for name, leaf in leaves_of(plan).items():
        given = inputs[name]
        if isinstance(given, WindowSource) or not isinstance(leaf, Source):
            raise UserError(f"run {name}", expected="rows, for a policy about their order", got="a wheel")
        source = live.tables[name].source if leaf.table else live.inputs[name].source
        reader = open_source(given, source, promises=False, sizes=AS_THEY_COME)
        chunks[name] = iter(reader if not progress else shown(reader, name, reader.total_rows))
    with live:
        while chunks:
            # Tables first: they are complete with the first event.
            name = min(chunks, key=lambda n: BEGINNING - 1 if n in live.tables else live.inputs[n].latest)
            chunk = next(chunks[name], None)
            if chunk is None:
                del chunks[name]
            else:
                yield from live.push(**{name: chunk.batch}).to_batches()
        yield from live.flush().to_batches()
    if counts is not None:
        stats = live.stats()
        for reason in REASONS:
            named = reason.replace(" ", "_")
            counts[named] = sum(getattr(one, named) for one in stats.inputs.values())
        counts["before_start"] = stats.before_start
