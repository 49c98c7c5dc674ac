"""Window aggregates over batches: push rows, advance time, get the windows that closed.

Rows become partials by key and pane (`panes`), windows become ranges over them (`slides`), ranges
become results (`results`). Memory holds the partials that some open window still needs.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from tidemill.core.types import INT64, STRING, to_arrow
from tidemill.expr.fluent import Expr
from tidemill.expr.nodes import Column, Node
from tidemill.expr.typing import resolve
from tidemill.kernels.arrow import build
from tidemill.kernels.ranges import Ranges
from tidemill.local.expressions import Expressions, evaluate
from tidemill.local.keys import KeyIndex
from tidemill.local.ordering import in_order
from tidemill.local.panes import Elements, PaneStore
from tidemill.local.partitions import ROW, Partitions
from tidemill.local.parts import plan_parts
from tidemill.local.results import Results
from tidemill.local.slides import Progress, Slide, slide_for
from tidemill.local.stages import StageRunner
from tidemill.plan.nodes import WindowAggregate
from tidemill.plan.stages import stage_of
from tidemill.windows.spec import GridWindow, PerEvent, Rows, Window

FEW_PARTIALS = 1 << 18
"""Below this many waiting partials, closing windows can wait: sorting little is not worth it."""
MANY_PARTIALS = 1 << 22
"""From this many on, combine them even if no window closes, so that memory follows keys and panes."""
OUTPUT_ROWS = 1 << 17
"""Rows of a result batch: few enough to stay in the processor's cache."""


class WindowOperator:
    """Configuration of one window aggregate, and its state."""

    def __init__(self, plan: WindowAggregate) -> None:
        assert plan.panes is not None and plan.sliding is not None
        self.plan = plan
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
            self._partitions = Partitions(base.select(plan.partition_of(specs[0])))
            base = Schema((*base.fields, (ROW, INT64)))
        self._base = base
        self.layout = self._full_layout(base, specs)
        self.parts = plan_parts(self.layout)
        self._slides = [slide_for(s, plan, self.layout) for s in specs]
        reaches = [s.reach for s in self._slides]
        reach = None if None in reaches else max(r for r in reaches if r is not None)
        self.store = PaneStore(plan, self.layout, self.parts, reach)
        self._build_expressions(predicates)
        sliding = (*plan.sliding, *("merge",) * (len(self.layout.parts) - len(plan.sliding)))
        self._results = Results(self.layout, self.parts, sliding)
        self._kernels: dict[Columns, AccumulateKernel] = {}
        self._arrow = plan.schema.to_arrow()
        self._retained = 0
        self._reached: int | None = None
        self.before_origin = 0
        """Rows that belong to no window, because they lie before the origin."""

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
        columns, args = self._expressions.prepare(batch)
        kid = self._encode(batch)
        if self._partitions is not None:
            self._partitions.note(kid, self.keys.count)
        kernel = self._kernels.get(columns)
        if kernel is None:
            kernel = self._kernels[columns] = self._compile(columns)
        assert self.plan.panes is not None
        grid = (self.plan.panes.origin, self.plan.panes.size)
        self.before_origin += self.store.add(
            kernel, batch.num_rows, self.keys.count, args, kid, grid, self._expressions.failure
        )

    def _encode(self, batch: pa.RecordBatch) -> Any:
        if not self.plan.group_keys:
            return np.empty(0, dtype=np.int64)
        arrays = [evaluate(self._outputs[k], batch, self._base) for k in self.plan.group_keys]
        return self.keys.encode(arrays)

    def _build_expressions(self, predicates: tuple[Node, ...]) -> None:
        rows = isinstance(self.plan.windows[0].spec, Rows)
        attribute = Column(ROW) if rows else self._outputs[self.plan.attribute]
        args = [self._over_base(a) for part in self.layout.parts for a in part.part.args]
        self._expressions = Expressions([*predicates, attribute, *args], self._base, self.store.pool)
        self._predicates = len(predicates)

    def _over_base(self, node: Node) -> Node:
        return node.transform(
            lambda n: self._outputs.get(n.name, n) if isinstance(n, Column) else n
        )

    def _compile(self, columns: Columns) -> AccumulateKernel:
        nodes = self._expressions.nodes
        p = self._predicates
        args, at = [], p + 1
        for part in self.layout.parts:
            args.append(nodes[at : at + len(part.part.args)])
            at += len(part.part.args)
        assert self.plan.panes is not None
        return accumulate_kernel(
            columns, nodes[:p], nodes[p], self.layout, tuple(args), self.parts.records,
            self.parts.kept, bool(self.plan.group_keys), self.plan.bounded, self.plan.panes.size == 1,
        )  # fmt: skip

    def _full_layout(self, base: Schema, specs: list[Window]) -> Layout:
        """The layout of the query's aggregates, and of what its windows must know besides."""
        extra = []
        for spec in specs:
            if isinstance(spec, PerEvent) and spec.every > 1:
                if spec.by == "rank":
                    extra.append(("$rows", count()))
                else:
                    ends = (Expr(Column(ROW)) + 1) % spec.every == 0
                    node = resolve(ends.node, base, step=str(spec))
                    extra.append((f"$ends{spec.every}", any_of(Expr(node))))
        if not extra:
            return self.plan.layout
        schema = Schema((*self.plan.input.schema.fields, (ROW, INT64)))
        return layout((*self.plan.aggregates, *extra), schema, {self.plan.input.time})

    def reach(self, pane: int) -> None:
        """Know of a pane of the stream that others hold: windows that fill up go on until there."""
        self._reached = pane if self._reached is None else max(self._reached, pane)

    # -- windows out

    def advance(self, below: int, *, prompt: bool = False) -> Iterator[pa.RecordBatch]:
        """The windows that close now that no row below `below` can come.

        Unless it is `prompt`, it may wait until enough has come to be worth sorting.
        """
        if self._order is not None and self._waiting and below == FOREVER:
            for batch in in_order(self._waiting, self._order):
                self._push(batch)
            self._waiting = []
        if below == FOREVER:
            yield from self._close(below, final=True)
            return
        below = self._known_below(below)
        waiting = self.store.spilled - self._retained
        enough = self.store.crowded or waiting > max(FEW_PARTIALS, 2 * self._retained)
        if below > BEGINNING and (prompt or enough):
            yield from self._close(below, final=False)
        elif waiting > max(MANY_PARTIALS, self._retained):
            self.store.elements()
            self._retained = self.store.spilled

    def _close(self, below: int, *, final: bool) -> Iterator[pa.RecordBatch]:
        elements = self.store.elements()
        if len(elements) == 0 and not final:
            return
        progress = self._progress(below, final)
        for window, slide in zip(self.plan.windows, self._slides):
            ranges = slide.ranges(elements, progress)
            for start in range(0, len(ranges), OUTPUT_ROWS):
                some = ranges[start : start + OUTPUT_ROWS]
                yield self._batch(window.label, slide, elements, some)
        if not final:
            self._forget(elements, progress)
        self._retained = self.store.spilled

    def _forget(self, elements: Elements, progress: Progress) -> None:
        """Let go of what no window to come can need."""
        bounds = [s.needed_from for s in self._slides]
        known = [b for b in bounds if b is not None]
        if len(known) == len(bounds) and self.store.forget(min(known)):
            return
        keep = np.zeros(len(elements), dtype=np.bool_)
        for slide in self._slides:
            keep |= slide.needed(elements, progress)
        self.store.retain(elements, keep)
        closed = [s.closed_from for s in self._slides]
        if all(c is not None for c in closed) and not self.parts.ordered:
            self.store.collapse(min(c for c in closed if c is not None))

    def _known_below(self, below: int) -> int:
        """What a promise about the stream's time says about the windowing attribute."""
        if isinstance(self.plan.windows[0].spec, Rows):
            return FOREVER - 1  # rows are complete as they come
        return below if self.plan.attribute == self.plan.input.time else BEGINNING

    @property
    def promise(self) -> int:
        """No row of the result to come has a window that starts below this."""
        return min(s.promise() for s in self._slides)

    def _progress(self, below: int, final: bool) -> Progress:
        none = np.zeros(1, dtype=np.int64)
        rows = none if self._partitions is None else self._partitions.rows
        partition = none if self._partitions is None else self._partitions.of_key
        return Progress(below, final, self._reached, self.keys.count, rows, partition)

    def _batch(
        self, label: str | None, slide: Slide, elements: Elements, ranges: Ranges
    ) -> pa.RecordBatch:
        arrays = self.keys.decode(ranges.kid) if self.plan.group_keys else []
        if len(self.plan.windows) > 1:
            arrays.append(pa.repeat(pa.scalar(label, to_arrow(STRING)), len(ranges)))
        bound = to_arrow(self.plan.bound_type)
        start, end = slide.bounds(elements, ranges)
        arrays += [build(start, None, bound), build(end, None, bound)]
        results = self._results.columns(elements, ranges, self.store.pool)
        arrays += results[: len(self.plan.layout.results)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)


def fuses(plan: WindowAggregate) -> bool:
    """Whether filters run in the loop that accumulates.

    Otherwise rows that pass are written first: rows are numbered, and costly keys looked up, only
    once they have passed.
    """
    if _splits(plan):
        return False
    kinds = [plan.input.schema[k] for k in plan.group_keys]
    cheap = len(kinds) == 0 or (len(kinds) == 1 and kinds[0].is_fixed)
    return cheap or not stage_of(plan.input).predicates


def _splits(plan: WindowAggregate) -> bool:
    """Whether rows must be known by partition: they are counted there, or make windows there."""
    spec = plan.windows[0].spec
    if any(w.spec.counts_arrivals for w in plan.windows):
        return True
    apart = set(plan.partition_of(spec)) != set(plan.group_keys)
    return apart and not isinstance(spec, GridWindow)
