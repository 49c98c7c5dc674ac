"""When the rows of a live query come: once, when they are complete, or also before and after that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.schema import Schema
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.core.types import BOOL, INT64
from tidemill.expr.nodes import Column
from tidemill.local.attributes import Attribute
from tidemill.local.given_rows import GivenRows
from tidemill.local.graph import Graph, OperatorStep
from tidemill.local.live_input import LiveInput
from tidemill.local.operator import Snapshot
from tidemill.local.snapshot import column, numbers
from tidemill.local.tuning import LIVE
from tidemill.plan.emit import FINAL, REVISION, WITHDRAWN, Emit
from tidemill.plan.identity import require_identity
from tidemill.plan.nodes import WINDOW_END, Filter, Plan, Project, WindowAggregate
from tidemill.windows.spec import Rows

Batches = Iterable[pa.RecordBatch]


class Emission(Protocol):
    """Drives the graph of a live query, and says which rows come when."""

    schema: pa.Schema
    """The columns of the rows."""

    def push(self, stream: str, batch: pa.RecordBatch, *, late: bool) -> Batches:
        """Take rows of an input; `late` says that some are below its watermark."""

    def advance(self, stream: str, below: int) -> Batches:
        """Set the watermark of an input."""

    def advance_keys(self, stream: str, keys: Mapping[str, pa.Array], below: int) -> Batches:
        """Set the watermark of some keys of an input."""

    def advance_on(
        self, stream: str, attribute: Attribute, below: int, keys: Mapping[str, pa.Array] | None
    ) -> Batches:
        """Set the watermark of an attribute of an input, for all rows or for some keys."""

    def pushed(self) -> Batches:
        """Note that all rows of a call were pushed."""

    def flush(self) -> Batches:
        """End all inputs."""

    @property
    def steps(self) -> list[OperatorStep]:
        """The operators, for their statistics."""

    @property
    def before_start(self) -> int:
        """The number of rows before the start of all windows."""

    def refused(self) -> dict[str, tuple[int, pa.Table]]:
        """Return how many rows operators could not use, and the newest ones, by the name of the step."""

    def snapshot(self) -> Snapshot: ...
    def track(self) -> None:
        """Record from now on what changes."""

    def changes(self) -> Snapshot:
        """Return what changed since the last `track`, as `local.changes` has it."""

    def restore(self, state: Snapshot) -> None: ...
    def close(self) -> None: ...


class Once:
    """Each row comes once, when it can no longer change, or on arrival of its base row."""

    def __init__(
        self, plan: Plan, threads: int, pool: Executor | None, on_arrival: int | None, *, few: bool
    ) -> None:
        """With `on_arrival`, a lateness, rows of interval joins come when base rows do.

        `few` says that rows come a few at a time, and their results soon.
        """
        self.schema = plan.schema.to_arrow()
        self.graph = self._graph = Graph(
            plan, threads, LIVE, keep_late=False, pool=pool, lenient=True, on_arrival=on_arrival, few=few
        )
        self.close, self.snapshot = self._graph.close, self._graph.snapshot
        self.refused = self._graph.refused
        self.track, self.changes = self._graph.track, self._graph.changes

    def push(self, stream: str, batch: pa.RecordBatch, *, late: bool) -> Batches:
        self._graph.expect_late(late)
        return self._graph.push(stream, batch)

    def advance(self, stream: str, below: int) -> Batches:
        return self._graph.advance(stream, below, prompt=True)

    def advance_keys(self, stream: str, keys: Mapping[str, pa.Array], below: int) -> Batches:
        return self._graph.advance_keys(stream, keys, below, prompt=True)

    def advance_on(
        self, stream: str, attribute: Attribute, below: int, keys: Mapping[str, pa.Array] | None
    ) -> Batches:
        return self._graph.advance_on(stream, attribute, below, keys, prompt=True)

    def pushed(self) -> Batches:
        return ()

    def flush(self) -> Batches:
        return _ended(self._graph)

    @property
    def steps(self) -> list[OperatorStep]:
        return self._graph.steps

    @property
    def before_start(self) -> int:
        return self._graph.before_start

    def restore(self, state: Snapshot) -> None:
        if any(name.startswith(_KEPT) for name in state):
            raise UserError("restore", expected="emit=, as the query had that was saved", got="none")
        self._graph.restore(state)


class Revised:
    """Rows come early and are corrected (`Emit`).

    There are up to two graphs of the same plan. The *prompt* one has the watermarks of the inputs: it says
    which windows are complete, and what the end of its inputs would give. The *kept* one has watermarks that
    are lower by `correct`. It takes late rows, and what is complete there is final. After a late row, the
    prompt graph is made anew as a copy of the kept one.
    """

    def __init__(
        self, plan: Plan, emit: Emit, threads: int, pool: Executor | None, inputs: Mapping[str, LiveInput]
    ) -> None:
        self._plan, self._emit, self._inputs = plan, emit, inputs
        self._graph = partial(Graph, plan, threads, LIVE, keep_late=False, pool=pool, lenient=True)
        identity = require_identity("Emit", plan)
        if taken := [name for name in (REVISION, FINAL, WITHDRAWN) if name in plan.schema]:
            raise UserError("Emit", expected="a result without a column of that name", got=f"{taken[0]!r}")
        added = ((REVISION, INT64), (FINAL, BOOL), (WITHDRAWN, BOOL))
        self._plain = plan.schema.to_arrow()
        self.schema = Schema((*plan.schema, *added)).to_arrow()
        self._prompt = self._graph()
        self._kept = self._graph() if emit.correct is not None else None
        self._given = GivenRows(plan.schema, identity)
        self._told = dict.fromkeys(inputs, BEGINNING)
        """The watermark of each input that the prompt graph knows."""
        self._stale = False
        """Whether late rows came that the prompt graph does not have."""
        domain = next(iter(inputs.values())).domain
        self._every, self._delay = emit.early_ticks(domain), emit.correct_ticks(domain)
        self._reached = BEGINNING
        """The greatest time for which there was an early answer."""
        self._ends = _time_of_ends(plan)

    # -- rows and time

    def push(self, stream: str, batch: pa.RecordBatch, *, late: bool) -> Batches:
        if self._kept is not None:
            yield from self._final(self._kept.push(stream, batch))
            self._stale |= late
        if not self._stale:
            yield from self._complete(self._prompt.push(stream, batch))

    def advance(self, stream: str, below: int) -> Batches:
        yield from self._renewed()
        if stream in self._told:  # and no table, which is complete at once
            self._told[stream] = max(self._told[stream], below)
        yield from self._complete(self._prompt.advance(stream, below, prompt=True))
        if self._kept is not None:
            yield from self._final(self._kept.advance(stream, self._behind(below), prompt=True))
        self._given.forget_gone(self._settled, _MOST_GONE)

    def advance_keys(self, stream: str, keys: Mapping[str, pa.Array], below: int) -> Batches:
        yield from self._renewed()
        yield from self._complete(self._prompt.advance_keys(stream, keys, below, prompt=True))
        if self._kept is not None:
            late = self._behind(below)
            yield from self._final(self._kept.advance_keys(stream, keys, late, prompt=True))

    def advance_on(
        self, stream: str, attribute: Attribute, below: int, keys: Mapping[str, pa.Array] | None
    ) -> Batches:
        """As `advance`. What is complete by an attribute is final: its late rows correct nothing."""
        return self._final(self._prompt.advance_on(stream, attribute, below, keys, prompt=True))

    def pushed(self) -> Batches:
        yield from self._renewed()
        time = max(given.latest for given in self._inputs.values())
        if self._every is not None and time // self._every > self._reached // self._every:
            self._reached = time
            yield from self._early()

    def flush(self) -> Batches:
        yield from self._renewed()
        if self._kept is not None:
            self._prompt.close()
        yield from self._final(_ended(self._kept or self._prompt))
        for open in (True, False):
            yield from self._withdrawn(self._plain.empty_table(), open=open)

    def _behind(self, below: int) -> int:
        return below if below == FOREVER else max(below - self._delay, BEGINNING)

    @property
    def _settled(self) -> tuple[str, int] | None:
        """What says of a withdrawn row that it cannot return; None if nothing does."""
        return None if self._ends is None else (self._ends, self._behind(min(self._told.values())))

    # -- which rows

    def _complete(self, found: Batches) -> Batches:
        """Give rows of complete windows. They are final if late rows do not change them."""
        if self._kept is None:
            return self._final(found)
        return self._changed(self._table(found), open=False)

    def _final(self, found: Batches) -> Batches:
        rows = self._table(found)
        if not len(rows):
            return []
        return self._marked(rows, self._given.finish(rows), final=True)

    def _changed(self, rows: pa.Table, *, open: bool) -> Batches:
        if not len(rows):
            return []
        changed, revision = self._given.note(rows, open=open)
        return self._marked(rows.filter(pa.array(changed)), revision[changed])

    def _withdrawn(self, now: pa.Table, *, open: bool) -> Batches:
        rows, revision = self._given.absent(now, open=open)
        return self._marked(rows, revision, withdrawn=True)

    def _early(self) -> Batches:
        """Give the rows of open windows that are new or have changed."""
        rows = self._table(self._prompt.so_far())
        yield from self._withdrawn(rows, open=True)
        yield from self._changed(rows, open=True)

    def _renewed(self) -> Batches:
        """Make the prompt graph anew after late rows, and give the rows that they have changed."""
        if not self._stale or self._kept is None:
            return
        self._stale = False
        self._prompt.close()
        self._prompt = self._copy(self._kept)
        found: list[pa.RecordBatch] = []
        for stream, below in self._told.items():
            if below > BEGINNING:
                found += self._prompt.advance(stream, below, prompt=True)
            for keys, limit in self._inputs[stream].promises_by_key():
                found += self._prompt.advance_keys(stream, keys, limit, prompt=True)
        rows = self._table(found)
        yield from self._withdrawn(rows, open=False)
        yield from self._changed(rows, open=False)

    def _copy(self, graph: Graph) -> Graph:
        copy = self._graph()
        copy.restore(graph.snapshot())
        return copy

    def _table(self, found: Batches) -> pa.Table:
        return pa.Table.from_batches(list(found), schema=self._plain)

    def _marked(
        self, rows: pa.Table, revision: npt.NDArray[np.int64], *, final: bool = False, withdrawn: bool = False
    ) -> Iterator[pa.RecordBatch]:
        flags = [pa.chunked_array([pa.repeat(flag, len(rows))]) for flag in (final, withdrawn)]
        arrays = [*rows.columns, pa.chunked_array([pa.array(revision, pa.int64())]), *flags]
        yield from pa.Table.from_arrays(arrays, schema=self.schema).to_batches()

    # -- state

    @property
    def steps(self) -> list[OperatorStep]:
        return self._prompt.steps + (self._kept.steps if self._kept is not None else [])

    @property
    def before_start(self) -> int:
        return (self._kept or self._prompt).before_start

    def refused(self) -> dict[str, tuple[int, pa.Table]]:
        return self._prompt.refused()

    def snapshot(self) -> Snapshot:
        return self._with({name: graph.snapshot() for name, graph in self._graphs().items()})

    def track(self) -> None:
        for graph in self._graphs().values():
            graph.track()

    def changes(self) -> Snapshot:
        return self._with({name: graph.changes() for name, graph in self._graphs().items()})

    def _with(self, states: Mapping[str, Snapshot]) -> Snapshot:
        """Return the states of graphs with what else is known; the rows that were given are always whole."""
        found = {_KEPT + "given": self._given.snapshot()}
        marks = [int(self._stale), self._reached, *self._told.values()]
        found[_KEPT + "about"] = numbers(marks=marks, delay=[self._delay] * len(marks))
        for name, state in states.items():
            found |= {f"{name}/{n}": table for n, table in state.items()}
        return found

    def restore(self, state: Snapshot) -> None:
        about, given = (state.get(_KEPT + name) for name in ("about", "given"))
        if about is None or given is None:
            raise UserError("restore", expected="a checkpoint of a query with emit=", got="one without")
        if column(about, "delay")[:1].tolist() != [self._delay]:
            raise UserError(
                "restore", expected=f"correct={self._emit.correct!r}, as now", got="another one",
                hint="the state of complete windows is kept for as long as correct= was",
            )  # fmt: skip
        for name, graph in self._graphs().items():
            own = f"{name}/"
            graph.restore({n[len(own) :]: t for n, t in state.items() if n.startswith(own)})
        marks = column(about, "marks").tolist()
        if len(marks) != 2 + len(self._told):
            raise UserError("restore", expected=f"{len(self._told)} watermarks", got=f"{len(marks) - 2}")
        self._stale, self._reached = bool(marks[0]), marks[1]
        self._told = dict(zip(self._told, marks[2:]))
        self._given.restore(given)

    def _graphs(self) -> dict[str, Graph]:
        return {"prompt": self._prompt} | ({} if self._kept is None else {"kept": self._kept})

    def close(self) -> None:
        for graph in self._graphs().values():
            graph.close()


_KEPT = "emission/"
_MOST_GONE = 1 << 20
"""If more withdrawn rows are known of which nothing says that they cannot return, they are forgotten."""


def _ended(graph: Graph) -> Iterator[pa.RecordBatch]:
    """End all inputs of a graph, and then the graph."""
    for name in graph.sources:
        yield from graph.advance(name, FOREVER, prompt=True)
    graph.close()


def _time_of_ends(plan: Plan) -> str | None:
    """Return the column with the ends of windows if they are instants of the stream, otherwise None."""
    if isinstance(plan, Filter):
        return _time_of_ends(plan.input)
    if isinstance(plan, Project):
        inner = _time_of_ends(plan.input)
        return next((n for n, node in plan.outputs if isinstance(node, Column) and node.name == inner), None)
    if not isinstance(plan, WindowAggregate) or isinstance(plan.windows[0].spec, Rows):
        return None
    return WINDOW_END if plan.attribute == plan.input.time else None
