"""A plan as a graph of operators, from its sources to its result.

Filters and projections are fused into the operator that reads them. If several operators read the same
result, it becomes a step of its own and is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.time import BEGINNING, FOREVER
from tidemill.local.attributes import Attribute
from tidemill.local.operator import Operator, Snapshot
from tidemill.local.spray import Chain, Spray, Stateless
from tidemill.local.stage_operator import StageOperator
from tidemill.local.stage_runner import StageRunner
from tidemill.local.table_stages import stage_over
from tidemill.local.tuning import DEFAULT, Tuning
from tidemill.local.union import UnionOperator
from tidemill.optimize.choices import with_choices
from tidemill.plan.arrival import base_streams, probe_streams
from tidemill.plan.as_of import inputs_of
from tidemill.plan.differences import require_same_plan
from tidemill.plan.format import format_plan
from tidemill.plan.nodes import (
    Filter,
    Plan,
    Project,
    Source,
    Union,
    WheelWindows,
    WindowAggregate,
    leaves_of,
    require_known,
)  # fmt: skip
from tidemill.plan.properties import looks_up, properties, slides_over_another
from tidemill.plan.sharing import used_often
from tidemill.plan.temporal import ALWAYS, Cut, Join, Temporal

if TYPE_CHECKING:
    from tidemill.local.arrival_operator import ArrivalOperator

_Calls = dict[int, list[Callable[[], Iterable[pa.RecordBatch]]]]
"""Calls of operators, by the `id` of their steps."""


def require_supported(plan: Plan) -> None:
    """Raise an error if the local engine has no operator for a node of the plan."""
    known = Source, Filter, Project, Union, WindowAggregate, WheelWindows, Temporal
    require_known(plan, known, "local", "local/graph.py, or run it on the reference engine")


@dataclass
class Step:
    """A source or an operator of a graph, and the steps that read its output."""

    name: str
    readers: list[tuple[OperatorStep, int]] = field(default_factory=list)
    """Each with the port at which it reads; the last step has no readers."""
    seconds: float = 0.0
    """The time that its operator has worked on the thread that drives the graph."""


@dataclass
class OperatorStep(Step):
    """A step that computes."""

    operator: Operator = field(kw_only=True)


class Graph:
    """The connected operators of a plan. Equal sub-plans of an optimised plan become one step.

    >>> import tidemill as tm
    >>> s = tm.stream("s", time="t", schema={"t": "int64"})
    >>> graph = Graph(s.window(tm.tumbling(10)).agg(n=tm.count()).optimized)
    >>> list(graph.push("s", pa.record_batch({"t": [1, 12]})))
    []
    >>> [b.to_pylist() for b in graph.advance("s", 10, prompt=True)]
    [[{'window_start': 0, 'window_end': 10, 'n': 1}]]
    """

    def __init__(
        self, plan: Plan, threads: int = 1, tuning: Tuning = DEFAULT, *, watch: bool = True,
        keep_late: bool = True, pool: Executor | None = None, lenient: bool = False, ahead: bool = False,
        on_arrival: int | None = None, few: bool = False,
    ) -> None:  # fmt: skip
        """Pass `watch=False` where promises follow from the rows themselves, so that none can be late.

        Pass `keep_late=False` where late rows are kept before they come here, and a `pool` whose threads work
        in place of the package's own. With `lenient`, rows that an operator cannot use are kept apart. With
        `ahead`, results may come later than they are complete, and nobody asks for the state. With
        `on_arrival`, a lateness in ticks, interval joins answer base rows when they come. `few` says that
        rows come a few at a time, and their results soon.
        """
        self._lenient, self._go_ahead, self._threads = lenient, ahead, threads
        self._on_arrival, self._few = on_arrival, few
        self._row_by_row = frozenset[str]()
        """The streams whose rows are base rows and probe rows of joins that answer on arrival."""
        if on_arrival is not None:
            self._row_by_row = base_streams(plan) & probe_streams(plan)
        require_supported(plan)
        self.plan = plan
        self.sources = leaves_of(plan)
        """The leaves of the plan, by the name of the stream."""
        self.rank = _rank(plan)
        """The order in which to read sources to their ends: those in which rows are looked up come first."""
        self.steps: list[OperatorStep] = []
        """In topological order: each step comes after the steps that it reads."""
        self._lanes, self._tuning, self._watch = 1 << (threads.bit_length() - 1), tuning, watch
        self._keep_late, self._pool, self._expects_late = keep_late, pool, watch
        self._spray: Spray | None = None
        self._shared = used_often(plan)
        self._made: dict[int, Step] = {}
        self._from: dict[str, Step] = {}
        self._last = self._step(plan, alone=True)
        self._asking: list[list[pa.RecordBatch]] = [[] for _ in self.steps]
        """For each step, base rows that wait until the probe rows of the same push are where they belong."""
        self._number = {id(step): number for number, step in enumerate(self.steps)}

    # -- building

    def _step(self, plan: Plan, *, alone: bool) -> Step:
        """Return the step that computes a plan; `alone` says that no stateful operator reads it."""
        if id(plan) not in self._made:
            if isinstance(plan, (Source, WheelWindows)):
                name = next(name for name, leaf in self.sources.items() if leaf is plan)
                self._made[id(plan)] = self._from[name] = Step(name)
            else:
                operator, inputs = self._operator(plan, alone)
                read = [self._step(p, alone=alone and isinstance(operator, StageOperator)) for p in inputs]
                name = f"{len(self.steps)}.{operator.kind}"
                self._made[id(plan)] = step = OperatorStep(name, operator=operator)
                self.steps.append(step)
                for port, below in enumerate(read):
                    below.readers.append((step, port))
        return self._made[id(plan)]

    def _operator(self, plan: Plan, alone: bool) -> tuple[Operator, tuple[Plan, ...]]:
        """Return the operator of a plan and the plans that it reads."""
        if isinstance(plan, Union):
            return UnionOperator(plan), plan.inputs
        if isinstance(plan, Temporal):
            from tidemill.local.temporal import temporal_operator

            made = temporal_operator(
                plan, self._tuning, lanes=self._lanes, pool=self._pool, keep_late=self._keep_late,
                lenient=self._lenient, ahead=self._go_ahead, on_arrival=self._on_arrival,
                few=self._few, joiners=self._threads,
            )  # fmt: skip
            return made, inputs_of(plan)
        if isinstance(plan, WindowAggregate):
            from tidemill.local.window_operator import WindowOperator

            stage = stage_over(plan.input, self._shared, self._shared)
            if self._go_ahead and plan.group_keys and _groups_table(plan):
                from tidemill.local.group_operator import GroupOperator

                return GroupOperator(plan, stage, self._threads, self._tuning), (stage.base,)
            if slides_over_another(plan):
                from tidemill.local.last_range import LastRangeOperator

                return LastRangeOperator(plan, stage, self._tuning, keep_late=self._keep_late), (stage.base,)
            # An aggregate that feeds another must pass on its watermark, which lanes on threads do not know.
            # That of a table is only known at its end.
            lanes = self._lanes if alone or plan.input.time == ALWAYS else 1
            return WindowOperator(
                plan, lanes, tuning=self._tuning, stage=stage, watch=self._watch, keep_late=self._keep_late,
                pool=self._pool,
            ), (stage.base,)  # fmt: skip
        stage = stage_over(plan, self._shared - {id(plan)}, self._shared)
        return StageOperator(stage), (stage.base,)

    # -- running

    @property
    def stateless(self) -> StageRunner | None:
        """The stage of a graph that has no other operator, otherwise None."""
        if len(self.steps) == 1 and isinstance(operator := self.steps[0].operator, StageOperator):
            return operator.runner
        return None

    def push(self, stream: str, batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        """Push a batch of a stream and return the results."""
        if self._on_arrival is None:
            return self._passed_on(self._from[stream], batch)
        each: Iterable[pa.RecordBatch] = (batch,)
        if stream in self._row_by_row:
            each = (batch.slice(row, 1) for row in range(batch.num_rows))
        return list(self._all_passed_on(self._from[stream], each))

    def operator_of(self, plan: Plan) -> Operator:
        """Return the operator of a node that has one of its own."""
        step = self._made[id(plan)]
        assert isinstance(step, OperatorStep)
        return step.operator

    def looked_up(self, stream: str, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Return the answers that base rows of a stream would have if they came now. Nothing is kept.

        Raises an error if a step on the way to the result would have to keep rows.
        """
        found, waiting = list[pa.RecordBatch](), dict[int, list[pa.RecordBatch]]()

        def passed_on(step: Step, rows: pa.RecordBatch) -> None:
            if step is self._last:
                found.append(rows)
            for reader, port in step.readers:
                if not self._gives_results(reader, port):
                    continue
                if reader.operator.on_arrival:
                    waiting.setdefault(id(reader), []).append(rows)
                    continue
                if reader.operator.keeps_rows:
                    raise UserError(
                        "lookup", expected="interval joins, and steps that look at each row alone",
                        got=f"the step {reader.name}, which keeps rows",
                        hint="push the row: its answer comes when it is complete",
                    )  # fmt: skip
                for out in reader.operator.push(port, rows):
                    passed_on(reader, out)

        passed_on(self._from[stream], batch)
        for step in self.steps:  # a join that reads another one comes after it
            for rows in waiting.get(id(step), ()):
                for out in cast("ArrivalOperator", step.operator).looked_up(rows):
                    passed_on(step, out)
        return found

    def _gives_results(self, step: OperatorStep, port: int) -> bool:
        """Return whether rows that come to a port become rows of the result; probe rows do not."""
        if port == 1 and step.operator.on_arrival:
            return False
        return step is self._last or any(self._gives_results(*reader) for reader in step.readers)

    def expect_late(self, late: bool) -> None:
        """Say whether rows to come may be below their watermarks; if not, operators do not look for them."""
        if late != self._expects_late:
            self._expects_late = late
            for step in self.steps:
                step.operator.expect_late(late)

    @property
    def wants_advance(self) -> bool:
        """Whether an advance could do something now, even if it is not prompt."""
        # Where rows may break promises, each promise counts: the rows after it are checked against it.
        return self._watch or any(step.operator.wants_advance for step in self.steps)

    def advance(self, stream: str, below: int, *, prompt: bool = False) -> Iterable[pa.RecordBatch]:
        """Set the watermark of a stream and return the results. Read all of them."""
        spray, readers = self._spray, self._from[stream].readers
        if spray is not None and spray.busy and below < FOREVER:
            spray.after(lambda _: self._advance_apart(stream, below, prompt))
            return spray.done()
        if spray is None and len(readers) == 1 and readers[0][0] is self._last:
            [(last, port)] = readers  # no other step has to hear of it
            return _timed(last, last.operator.advance(port, below, prompt=prompt))
        return self._advance_all(stream, below, prompt)

    def _advance_apart(self, stream: str, below: int, prompt: bool) -> list[pa.RecordBatch]:
        """Set a watermark that came after batches that are done, and before others that are not."""
        assert self._spray is not None
        with self._spray.apart():
            return list(self._advance_all(stream, below, prompt))

    def _advance_all(self, stream: str, below: int, prompt: bool) -> Iterator[pa.RecordBatch]:
        readers = self._from[stream].readers
        calls: _Calls = {}
        for step, port in readers:  # one step may read it at several ports
            call = partial(step.operator.advance, port, below, prompt=prompt)
            calls.setdefault(id(step), []).append(call)
        return self._advance(calls, prompt)

    def _advance(self, calls: _Calls, prompt: bool) -> Iterator[pa.RecordBatch]:
        """Make the first calls of some steps, and let all steps that read them advance."""
        for step in self.steps:  # in topological order, so each step advances once
            yield from self._sprayed(all_=True)
            for call in calls.get(id(step), ()):
                yield from self._all_passed_on(step, _timed(step, call()))
            if id(step) in calls:
                promise = step.operator.promise.common
                for reader, port in step.readers:
                    call = partial(reader.operator.advance, port, promise, prompt=prompt)
                    calls.setdefault(id(reader), []).append(call)
        yield from self._sprayed(all_=True)

    def advance_keys(
        self, stream: str, keys: Mapping[str, pa.Array], below: int, *, prompt: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Set the watermark of some keys of a stream and return the results. Exhaust the iterator.

        `keys` are columns of the stream, with a row for each key. Only the first operators that keep rows use
        this watermark; those behind them wait for the watermark of the whole stream.
        """
        yield from self._advance_keys(self._from[stream], keys, below, prompt)

    def _advance_keys(
        self, read: Step, keys: Mapping[str, pa.Array], below: int, prompt: bool
    ) -> Iterator[pa.RecordBatch]:
        for step, port in read.readers:
            found = step.operator.advance_keys(port, keys, below, prompt=prompt)
            yield from self._all_passed_on(step, _timed(step, found))
            passed = step.operator.keys_passed_on(port, keys, below)
            if passed is not None:
                yield from self._advance_keys(step, *passed, prompt)

    def advance_on(
        self, stream: str, attribute: Attribute, below: int, keys: Mapping[str, pa.Array] | None = None,
        *, prompt: bool = False,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """Set the watermark of an attribute, for all rows of a stream or for some keys. Exhaust the iterator.

        The watermark is in ticks of the attribute. Only operators that read the stream directly use it.
        """
        calls: _Calls = {}
        for step, port in self._from[stream].readers:
            if step.operator.attribute == attribute:
                call = partial(step.operator.advance_on, port, below, keys, prompt=prompt)
                calls.setdefault(id(step), []).append(call)
        return self._advance(calls, prompt)

    def _passed_on(self, step: Step, batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        """Push a batch of a step to those that read it, and return what comes out of the last one."""
        if step is self._last:
            return (batch,)
        found: list[pa.RecordBatch] = []
        for reader, port in step.readers:
            if port == 0 and self._on_arrival is not None and reader.operator.on_arrival:
                self._asking[self._number[id(reader)]].append(batch)
                continue
            if self._spray is not None and (chain := _chain(reader, port)) is not None:
                self._spray.start(chain, batch, partial(self._all_passed_on, chain.last))
                found += self._sprayed()
                continue
            start = perf_counter()
            made = reader.operator.push(port, batch)
            reader.seconds += perf_counter() - start
            for out in made:
                found += self._passed_on(reader, out)
        return found

    def spray(self, threads: int) -> None:
        """Run steps that keep nothing on so many threads; what a `push` returns may be of earlier rows."""
        if threads > 1:
            self._spray = Spray(threads, self._tuning.few_sprayed)

    def _sprayed(self, *, all_: bool = False) -> Iterable[pa.RecordBatch]:
        """Return the results of batches that are done; with `all_`, wait for all."""
        return () if self._spray is None else self._spray.done(all_=all_)

    def _all_passed_on(self, step: Step, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self._passed_on(step, batch)
            yield from self._answered()

    def _answered(self) -> Iterator[pa.RecordBatch]:
        """Let base rows ask that wait for it, and return what comes out of the last step."""
        if self._on_arrival is None:
            return
        for step, waiting in zip(self.steps, self._asking):  # a join that reads another one comes after it
            for batch in waiting:
                for out in _timed(step, step.operator.push(0, batch)):
                    yield from self._passed_on(step, out)
            waiting.clear()

    @property
    def promise(self) -> int:
        """No result to come starts below this."""
        return self._last.operator.promise.common if isinstance(self._last, OperatorStep) else BEGINNING

    @property
    def seconds(self) -> dict[str, float]:
        """The time that each operator has worked, by the name of its step."""
        return {step.name: step.seconds for step in self.steps}

    def so_far(self) -> list[pa.RecordBatch]:
        """Return what the end of all inputs would return now. The graph goes on as if nothing was asked.

        Together with all earlier results it is the answer over the rows that were pushed. It costs what is
        open; an aggregate over results of another one is copied for it.
        """
        more: dict[int, list[tuple[int, pa.RecordBatch]]] = {}
        found = []
        for step in self.steps:  # in topological order
            for out in step.operator.so_far(more.get(id(step), ())):
                if step is self._last:
                    found.append(out)
                for reader, port in step.readers:
                    more.setdefault(id(reader), []).append((port, out))
        return found

    def close(self) -> None:
        """Stop the threads of all operators."""
        if self._spray is not None:
            self._spray.close()
        for step in self.steps:
            step.operator.close()

    # -- state

    @property
    def before_start(self) -> int:
        """The number of rows in no window because they lie before the start of all windows."""
        return sum(step.operator.before_start for step in self.steps)

    def late(self) -> dict[str, pa.Table]:
        """Return the late rows so far, by the name of the step for which they were late."""
        found = {step.name: step.operator.late() for step in self.steps}
        return {name: rows for name, rows in found.items() if rows is not None and len(rows)}

    def refused(self) -> dict[str, tuple[int, pa.Table]]:
        """Return how many rows operators could not use, and the newest ones, by the name of the step.

        Those of a second input have its number in the name.
        """
        found = {}
        for step in self.steps:
            for port in range(step.operator.ports):
                refused = step.operator.refused(port)
                if refused is not None and refused[0]:
                    found[f"{step.name}, input {port + 1}" if port else step.name] = refused
        return found

    @property
    def described(self) -> str:
        """The plan as text: a state can be restored where it is the same."""
        return format_plan(self.plan, with_choices)

    def snapshot(self) -> Snapshot:
        """Return the state of all operators. The graph can continue afterwards."""
        return self._named({step.name: step.operator.snapshot() for step in self.steps})

    def track(self) -> None:
        """Record from now on what changes: all that is so far was saved, or restored."""
        for step in self.steps:
            step.operator.track()

    def changes(self) -> Snapshot:
        """Return what changed since the last `track`, as `local.changes` says."""
        return self._named({step.name: step.operator.changes() for step in self.steps})

    def _named(self, states: Mapping[str, Snapshot]) -> Snapshot:
        found = {"plan": pa.table({"plan": [self.described]})}
        for step, state in states.items():
            found |= {f"{step}/{name}": table for name, table in state.items()}
        return found

    def restore(self, state: Snapshot) -> None:
        """Load a snapshot of the same plan into a graph that has read no data."""
        theirs = state.get("plan")
        if theirs is None or theirs.column_names != ["plan"] or len(theirs) != 1:
            raise UserError("restore", expected="a snapshot of a query", got="one without a plan")
        require_same_plan(str(theirs["plan"][0]), self.described)
        for step in self.steps:
            own = f"{step.name}/"
            step.operator.restore({n[len(own) :]: t for n, t in state.items() if n.startswith(own)})


def _groups_table(plan: WindowAggregate) -> bool:
    """Return whether it is an aggregate of rows that all hold for ever (`optimize.group_tables`)."""
    return plan.input.time == ALWAYS and properties(plan.input).everlasting and not plan.ids


def _rank(plan: Plan) -> dict[str, int]:
    """Return a number below 0 for each source of a table in which rows are looked up."""
    found: dict[str, int] = {}
    for node in plan.walk():
        if isinstance(node, (Join, Cut)) and looks_up(node):
            for name in leaves_of(node.right):
                found[name] = found.get(name, 0) - 1
    return found


def _chain(step: OperatorStep, port: int) -> Chain[OperatorStep] | None:
    """Return the steps from one on that keep nothing; None if it keeps something."""
    calls: list[Stateless] = []
    last = step
    while (call := step.operator.stateless(port)) is not None:
        calls.append(call)
        last = step
        if len(step.readers) != 1:
            break
        [(step, port)] = step.readers
    return Chain(tuple(calls), last) if calls else None


def _timed(step: Step, found: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """Return the results of a step, and count the time that it takes to make them."""
    return () if found == () else _counted(step, iter(found))  # most advances return nothing


def _counted(step: Step, made: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    while True:
        start = perf_counter()
        out = next(made, None)
        step.seconds += perf_counter() - start
        if out is None:
            return
        yield out
