"""Window aggregates over batches: push rows, advance time, get the windows that closed.

What rows need before they count is done here, once for all: filters, keys, numbers of rows. Then the
lanes take over (`lanes`), on one thread each where there are several.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.aggregates.basic import any as any_of
from tidemill.aggregates.basic import count
from tidemill.aggregates.layout import Layout, layout
from tidemill.codegen.accumulate import AccumulateKernel, accumulate_kernel
from tidemill.codegen.columns import Columns
from tidemill.core.schema import Schema
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.core.types import INT64
from tidemill.expr.fluent import Expr
from tidemill.expr.nodes import Column, Node
from tidemill.expr.typing import resolve
from tidemill.kernels.keys import KeyIndex
from tidemill.local.expressions import Expressions, evaluate
from tidemill.local.lanes import Lane, Share
from tidemill.local.pane_store import PaneStore
from tidemill.local.row_numbers import ROW, Partitions
from tidemill.local.sampling import has_gaps, in_windows
from tidemill.local.slides import ROWS, Progress, ends_name
from tidemill.local.sorted_rows import in_order
from tidemill.local.stages import StageRunner
from tidemill.local.state_plan import plan_parts
from tidemill.optimize.choices import choices_of
from tidemill.plan.nodes import WindowAggregate
from tidemill.plan.physical import WindowChoices
from tidemill.plan.stages import stage_of
from tidemill.windows.spec import GridWindow, PerEvent, Rows, Window

BACKLOG = 4
"""Calls that may wait for a lane's thread before the caller waits too."""


class WindowOperator:
    """Configuration of one window aggregate, and its state, in lanes.

    With several lanes, `advance` gives what their threads have ready, and the end gives the rest.
    """

    def __init__(
        self, plan: WindowAggregate, lanes: int = 1, choices: WindowChoices | None = None
    ) -> None:
        self.plan, self.choices = plan, choices or choices_of(plan)
        stage = stage_of(plan.input)
        specs = [w.spec for w in plan.windows]
        self.keys = KeyIndex(plan.input.schema.select(plan.group_keys))
        self._order = next((o for s in specs if (o := getattr(s, "order_by", None))), None)
        self._waiting: list[pa.RecordBatch] = []
        self._partitions: Partitions | None = None
        self._compact: StageRunner | None = None
        base, predicates = stage.base.schema, stage.predicates
        self._outputs: dict[str, Node] = dict(stage.outputs)
        if not fuses(plan):
            self._compact = StageRunner(stage.predicates, stage.outputs, stage.base.schema)
            base, predicates = plan.input.schema, ()
            self._outputs = {n: Column(n) for n in base.names}
        if _splits(plan):
            self._partitions = Partitions(base.select(plan.partition))
            base = Schema((*base.fields, (ROW, INT64)))
        self._base = base
        self.layout = self._full_layout(base, specs)
        self.parts = plan_parts(self.layout)
        shares = [Share(i, lanes) for i in range(lanes)] if self._divides() else [Share()]
        self.lanes = [Lane(plan, self.choices, self.layout, self.parts, self.keys, s) for s in shares]
        self._workers = [ThreadPoolExecutor(1, "tidemill-lane") for _ in shares[1:] and shares]
        self._running: deque[list[Future[_Closed]]] = deque()
        self._build_expressions(predicates)
        self._kernels: dict[tuple[Columns, bool], AccumulateKernel] = {}
        self.promise = BEGINNING
        """No row of the result to come has a window that starts below this."""

    @property
    def store(self) -> PaneStore:
        """The partials, where there is one lane."""
        (lane,) = self.lanes
        return lane.store

    @property
    def before_start(self) -> int:
        """Rows that belong to no window, because they lie before the start of all."""
        return sum(lane.before_start for lane in self.lanes)

    def close(self) -> None:
        """Stop the threads. What they have not begun is left undone."""
        for worker in self._workers:
            worker.shutdown(cancel_futures=True)

    # -- rows in

    def push(self, batch: pa.RecordBatch) -> None:
        if self._compact is not None and not self._compact.trivial:
            batch = self._compact.run(batch)
        if batch.num_rows == 0:
            return
        if self._order is not None:
            self._waiting.append(batch)
        else:
            self._push(batch)

    def _push(self, batch: pa.RecordBatch) -> None:
        if self._partitions is not None:
            batch = self._partitions.number(batch)
        columns, args, failure = self._expressions.prepare(batch)
        kid = self._encode(batch)
        if self._partitions is not None:
            self._partitions.note(kid, self.keys.count)
        keys = self.keys.count
        wanted = in_windows(self.plan, self._attribute_of(batch)) if has_gaps(self.plan) else None

        def add(lane: Lane) -> _Closed:
            kernel = partial(self._kernel, columns)
            lane.add(kernel, batch.num_rows, keys, args, kid, failure, wanted)
            return [], lane.promise

        self._run([partial(add, lane) for lane in self.lanes])

    def _attribute_of(self, batch: pa.RecordBatch) -> pa.Array:
        return evaluate(self._attribute, batch, self._base)

    def _encode(self, batch: pa.RecordBatch) -> Any:
        if not self.plan.group_keys:
            return np.empty(0, dtype=np.int64)
        arrays = [evaluate(self._outputs[k], batch, self._base) for k in self.plan.group_keys]
        return self.keys.encode(arrays)

    def _build_expressions(self, predicates: tuple[Node, ...]) -> None:
        rows = isinstance(self.plan.windows[0].spec, Rows)
        attribute = Column(ROW) if rows else self._outputs[self.plan.attribute]
        self._attribute = attribute
        args = [self._over_base(a) for part in self.layout.parts for a in part.part.args]
        pool = self.lanes[0].store.pool
        self._expressions = Expressions([*predicates, attribute, *args], self._base, pool)
        self._predicates = len(predicates)

    def _over_base(self, node: Node) -> Node:
        return node.transform(
            lambda n: self._outputs.get(n.name, n) if isinstance(n, Column) else n
        )

    def _kernel(self, columns: Columns, by_plane: bool) -> AccumulateKernel:
        kernel = self._kernels.get((columns, by_plane))
        if kernel is None:
            kernel = self._kernels[columns, by_plane] = self._compile(columns, by_plane)
        return kernel

    def _compile(self, columns: Columns, by_plane: bool) -> AccumulateKernel:
        nodes = self._expressions.nodes
        p = self._predicates
        args, at = [], p + 1
        for part in self.layout.parts:
            args.append(nodes[at : at + len(part.part.args)])
            at += len(part.part.args)
        return accumulate_kernel(
            columns, nodes[:p], nodes[p], self.layout, tuple(args), self.parts.records,
            self.parts.kept, bool(self.plan.group_keys), self.plan.start is not None,
            self.choices.panes.size == 1, by_plane,
        )  # fmt: skip

    def _full_layout(self, base: Schema, specs: list[Window]) -> Layout:
        """The layout of the query's aggregates, and of what its windows must know besides."""
        extra = []
        for spec in specs:
            if isinstance(spec, PerEvent) and spec.every > 1:
                if spec.by == "rank":
                    extra.append((ROWS, count()))
                else:
                    ends = (Expr(Column(ROW)) + 1) % spec.every == 0
                    node = resolve(ends.node, base, step=str(spec))
                    extra.append((ends_name(spec), any_of(Expr(node))))
        if not extra:
            return self.plan.layout
        schema = Schema((*self.plan.input.schema.fields, (ROW, INT64)))
        return layout((*self.plan.aggregates, *extra), schema, self.plan.never_null)

    def goes_on_to(self, window: int, pane: int) -> None:
        """Know of a pane that a window has in what others hold: if it fills up, it goes on until there."""
        for lane in self.lanes:
            lane.goes_on_to(window, pane)

    # -- windows out

    def advance(self, below: int, *, prompt: bool = False) -> Iterator[pa.RecordBatch]:
        """The windows that close now that no row below `below` can come.

        Unless it is `prompt`, it may wait until enough has come to be worth sorting.
        """
        final = below == FOREVER
        if final and self._waiting and self._order is not None:
            for batch in in_order(self._waiting, self._order):
                self._push(batch)
            self._waiting = []
        progress = self._progress(below if final else self._known_below(below), final)
        if len(self.lanes) == 1:  # as they come: a result need not fit in memory
            yield from self.lanes[0].advance(progress, prompt=prompt)
            self.promise = self.lanes[0].promise
            return

        if final:
            while self._running:
                yield from self._finished()
            yield from self._last(progress)
            return

        def close(lane: Lane) -> _Closed:
            return list(lane.advance(progress, prompt=prompt)), lane.promise

        self._run([partial(close, lane) for lane in self.lanes])
        while self._running and (prompt or len(self._running) > BACKLOG):
            yield from self._finished()

    def _last(self, progress: Progress) -> Iterator[pa.RecordBatch]:
        """What the lanes have left, a batch of each at a time: it need not fit in memory."""
        results = [lane.advance(progress, prompt=True) for lane in self.lanes]
        coming = deque((w, r, w.submit(next, r, None)) for w, r in zip(self._workers, results))
        while coming:
            worker, result, future = coming.popleft()
            if (batch := future.result()) is not None:
                coming.append((worker, result, worker.submit(next, result, None)))
                yield batch

    def settle(self) -> None:
        """Combine the partials that wait, if they are many; no window closes."""
        for lane in self.lanes:
            lane.settle()

    def _run(self, calls: list[Callable[[], _Closed]]) -> None:
        """Have each lane do something, in its thread if it has one."""
        if not self._workers:
            calls[0]()
        else:
            self._running.append([w.submit(call) for w, call in zip(self._workers, calls)])

    def _finished(self) -> Iterator[pa.RecordBatch]:
        """What the oldest calls gave."""
        closed = [future.result() for future in self._running.popleft()]
        self.promise = min(promise for _, promise in closed)
        for batches, _ in closed:
            yield from batches

    def _known_below(self, below: int) -> int:
        """What a promise about the stream's time says about the windowing attribute."""
        if isinstance(self.plan.windows[0].spec, Rows):
            return FOREVER - 1  # rows are complete as they come
        return below if self.plan.attribute == self.plan.input.time else BEGINNING

    def _progress(self, below: int, final: bool) -> Progress:
        none = np.zeros(1, dtype=np.int64)
        rows = none if self._partitions is None else self._partitions.rows
        partition = none if self._partitions is None else self._partitions.of_key
        return Progress(below, final, self.keys.count, rows, partition)

    def _divides(self) -> bool:
        """Whether lanes can be on their own: each has all that its windows depend on.

        Strings in partials have one pool, whose order changes as it grows; Python objects have the
        interpreter's lock.
        """
        alone = not any(w.spec.until_end for w in self.plan.windows) and self._partitions is None
        strings = any(t.kind == "string" for p in self.layout.parts for t in p.types)
        return bool(self.plan.group_keys) and alone and not strings and not self.parts.objects


_Closed = tuple[list[pa.RecordBatch], int]
"""Windows that a lane closed, and its promise for those to come."""


def fuses(plan: WindowAggregate) -> bool:
    """Whether filters run in the loop that accumulates.

    Otherwise rows that pass are written first: rows are numbered, and costly keys looked up, only
    once they have passed.
    """
    if _splits(plan):
        return False
    stage, keys = stage_of(plan.input), plan.group_keys
    if has_gaps(plan) and not isinstance(stage.output(plan.attribute), Column):
        return False  # looked at before the loop, where it may fail on rows that do not pass
    # A key that is computed may fail on rows that do not pass.
    cheap = len(keys) == 0 or (
        len(keys) == 1
        and plan.input.schema[keys[0]].is_fixed
        and isinstance(stage.output(keys[0]), Column)
    )
    return cheap or not stage.predicates


def _splits(plan: WindowAggregate) -> bool:
    """Whether rows must be known by partition: they are counted there, or make windows there."""
    specs = [w.spec for w in plan.windows]
    if any(s.counts_arrivals for s in specs):
        return True
    apart = set(plan.partition) != set(plan.group_keys)
    return apart and any(not isinstance(s, GridWindow) for s in specs)
