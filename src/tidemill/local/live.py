"""A query that goes on: push rows, say how far time is complete, get what is complete."""

from __future__ import annotations

import functools
import threading
import time
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa

from tidemill.core.clock import Clock
from tidemill.core.errors import TidemillError, UserError
from tidemill.core.files import resolved
from tidemill.core.forks import renew_locks
from tidemill.core.time import BEGINNING, FOREVER, DurationLike
from tidemill.local import checkpoint as files
from tidemill.local.attributes import attributes_of
from tidemill.local.checkpoint_directory import KEEP, Found, Writer, is_directory, read_newest
from tidemill.local.emission import Emission, Once, Revised
from tidemill.local.feeds import FeedReader, Options
from tidemill.local.late_sink import LateTo
from tidemill.local.live_delay import Delayed
from tidemill.local.live_input import LiveInput
from tidemill.local.live_results import LiveResults
from tidemill.local.live_stats import InputStats, LiveStats
from tidemill.local.live_table import LiveTable
from tidemill.local.lookups import Lookups
from tidemill.local.operator import Snapshot
from tidemill.local.unread_columns import Pushed
from tidemill.optimize.choices import with_choices
from tidemill.plan.arrival import EXACT, ON_ARRIVAL, base_streams, lateness_of, require_answers
from tidemill.plan.disorder import Disorder
from tidemill.plan.emit import Emit, Latency
from tidemill.plan.format import format_plan
from tidemill.plan.nodes import Plan, Source, closes_by_rows, closings_of, leaves_of, sources
from tidemill.plan.usable_rows import checks_of, usable_only

Callback = Callable[[pa.Table], object]
_WAITING, _ROWS = "waiting/", "/rows"
_P = ParamSpec("_P")
_R = TypeVar("_R")


def _in_turn(call: Callable[Concatenate[Live, _P], _R]) -> Callable[Concatenate[Live, _P], _R]:
    """Let calls of several threads take turns; a subscriber, which is called meanwhile, may call as well."""

    @functools.wraps(call)
    def waits(self: Live, /, *args: _P.args, **named: _P.kwargs) -> _R:
        with self._turn:
            return call(self, *args, **named)

    return waits


class Live:
    """A running query. Make one with `query.live(...)`; it has no threads of its own.

    Several threads may use it: their calls take turns.

    >>> import tidemill as tm
    >>> clicks = tm.stream("clicks", time="t", schema={"t": "int64", "ad": "int64"})
    >>> live = clicks.group_by("ad").window(tm.tumbling(10)).agg(n=tm.count()).live(tm.Disorder(slack=5))
    >>> live.push(clicks=[{"t": 1, "ad": 7}, {"t": 12, "ad": 7}, {"t": 8, "ad": 7}]).num_rows
    0
    >>> live.push(clicks={"t": 15, "ad": 7}).to_pylist()
    [{'ad': 7, 'window_start': 0, 'window_end': 10, 'n': 2}]
    >>> live.flush().to_pylist()
    [{'ad': 7, 'window_start': 10, 'window_end': 20, 'n': 2}]
    """

    def __init__(
        self, plan: Plan, disorder: Disorder | None = None, *, emit: Emit | None = None,
        latency: Latency | None = None, threads: int = 1, pool: Executor | None = None,
        clock: Callable[[], float] = time.monotonic, serves: Mapping[str, str] | None = None,
        answers: str = EXACT,
    ) -> None:  # fmt: skip
        """`serves` says what the query is for those who have its checkpoints: others are refused."""
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise UserError("live", expected="threads= at least 1", got=repr(threads))
        if pool is not None and not isinstance(pool, Executor):
            raise UserError("live", expected="pool= a concurrent.futures executor", got=f"{pool!r:.80}")
        policy = disorder or Disorder()
        self._serves = dict(serves or {})
        self._says_nothing = disorder is None
        """Whether nobody said how far rows may be out of order."""
        for given, kind in ((policy, Disorder), (emit, Emit), (latency, Latency)):
            if given is not None and not isinstance(given, kind):
                raise UserError("live", expected=f"a tm.{kind.__name__}(...)", got=f"{given!r:.80}")
        on_arrival = require_answers(plan, answers, ("emit", emit), ("latency", latency))
        self._answers, lateness = answers, lateness_of(plan) if on_arrival else None
        asked, plan = plan, usable_only(plan)
        leaves, self.plan = leaves_of(plan), plan
        named = {source.name: leaves[source.name] for source in sources(plan)}
        self._inputs = {}
        self._tables = {n: LiveTable(t) for n, t in named.items() if isinstance(t, Source) and t.table}
        for name, leaf in named.items():
            if isinstance(leaf, Source) and not leaf.table:
                correct = emit.correct_ticks(leaf.domain) if emit is not None else 0
                ordered = Disorder(slack=0, late="raise")  # as `run` refuses rows that are out of order
                own = ordered if leaf.ordered and disorder is None else policy
                self._inputs[name] = LiveInput(
                    leaf, own, correct=correct, by_row=latency is None, closings=closings_of(plan),
                    attributes=attributes_of(plan, name), checks=checks_of(asked, name),
                    lateness=lateness,
                )  # fmt: skip
        self._emission: Emission
        self._lookups: Lookups | None = None
        """What answers rows that are not pushed."""
        if emit is None:
            self._emission = once = Once(plan, threads, pool, lateness, few=True)
            bases = base_streams(plan) if lateness is not None else frozenset[str]()
            if lateness is not None and len(bases) == 1:
                self._lookups = Lookups(once.graph, self._inputs[next(iter(bases))], lateness)
        else:
            self._emission = Revised(plan, emit, threads, pool, self._inputs)
        self._come_last = base_streams(plan) if on_arrival else frozenset[str]()
        """The inputs whose rows are answered when they come: after other rows of the same call."""
        self.schema = self._schema = self._emission.schema
        """The columns of the tables that it returns."""
        self._nothing = self._schema.empty_table()
        self._delayed = None if latency is None else Delayed(latency, self._inputs)
        self._by_rows, self._correct = closes_by_rows(plan), emit is not None and emit.correct is not None
        self._idle, self._clock = policy.idle_seconds, clock
        self._last = dict.fromkeys(self._inputs, clock())
        """When each input sent something; kept where inputs may be idle."""
        self._told = dict.fromkeys(self._inputs, BEGINNING)
        """The watermark that the graph knows of each input."""
        self.positions: dict[str, Any] = {}
        """The position of each input up to which it was read, as `push` was told."""
        self._callbacks: list[Callback] = []
        self._results: weakref.WeakSet[LiveResults] = weakref.WeakSet()
        """Those that somebody still reads."""
        self._failed_callbacks = self._rows_out = 0
        self._seconds = 0.0
        self._ended = False
        self._turn = threading.RLock()
        renew_locks(self)
        self._broken = ""
        self._writer: Writer | None = None
        self._restored: Found | None = None
        """The checkpoint of a directory from which the query goes on."""

    def new_locks(self) -> None:
        """In a forked child: what another thread was doing at that moment is not finished here."""
        if not self._turn.acquire(blocking=False):
            self._ended, self._broken = True, "a fork of the process while another thread called it"
        self._turn = threading.RLock()

    # -- rows and time

    @_in_turn
    def push(self, data: Any = None, /, *, position: Any = None, **batches: Any) -> pa.Table:
        """Take rows of some inputs, by name, and return the rows of the result that are now complete.

        A batch is Arrow data, a pandas or Polars frame, a list of dicts, or one dict; that of a query of one
        input needs no name. If one batch cannot be read, none is taken. `position` says up to where the input
        was read: a checkpoint keeps it, for the one who goes on. With several inputs it is a dict by name.
        """
        if self._ended or self._broken:
            self._require_open("push")
        inputs = self._inputs
        if data is not None:
            batches = self._named(data, batches)
        tables: list[tuple[LiveTable, list[pa.RecordBatch]]] = []
        if not batches.keys() <= inputs.keys():
            self._require_names("push", batches, tables=True)
            tables = [(t, t.read(batches.pop(n))) for n, t in self._tables.items() if n in batches]
        at = {} if position is None else self._positions(position, batches)
        if self._come_last and len(batches) > 1:
            batches = dict(sorted(batches.items(), key=lambda one: one[0] in self._come_last))
        read = [(inputs[name], inputs[name].read(value)) for name, value in batches.items()]
        if self._idle is not None:
            self._hold_back_no_more()
        for given, rows in read:
            given.require_in_time(rows)
        return self._done(self._push, read, at, tables)

    def _push(
        self, read: list[tuple[LiveInput, list[Pushed]]], at: Mapping[str, Any],
        tables: list[tuple[LiveTable, list[pa.RecordBatch]]],
    ) -> list[pa.RecordBatch]:  # fmt: skip
        found: list[pa.RecordBatch] = []
        for table, batches in tables:
            for batch in batches:
                table.rows += batch.num_rows
                found += self._emission.push(table.name, batch, late=False)
        if read and self._tables:
            found += self._completed_tables()
        for given, batches in read:
            for pushed in batches:
                for rows, late, rises in given.accepted(pushed):
                    if rises:
                        given.follow()
                        found += self._advance()
                    if rows.num_rows:
                        found += self._taken(given.name, rows, late=late)
            if self._idle is not None:
                self._last[given.name] = self._clock()
        if self._delayed is None or self._delayed.due():
            for given in [given for given, _ in read] if self._delayed is None else self._inputs.values():
                given.follow()
            found += self._advance()
            found += self._emission.pushed()
        if at:
            self.positions.update(at)  # before subscribers hear of the rows: they may write a checkpoint
        return found

    def _completed_tables(self) -> Iterator[pa.RecordBatch]:
        """A table has all its rows before the first event."""
        for table in self._tables.values():
            if not table.complete:
                table.complete = True
                yield from self._emission.advance(table.name, FOREVER)

    @_in_turn
    def lookup(self, rows: Any) -> Any:
        """Return what base rows would get if they came now, and keep nothing of them.

        The query must have `answers="on arrival"`. A dict is one row, and its answer is a dict; None if a
        filter leaves it out. Other rows are as for `push`, each is looked up alone, and the answers are a
        table in their order. A row that cannot be answered is an error, and so is a dict with several
        answers. A row that is looked up does not count as one that came: it is no probe row, and does not
        raise the watermark.
        """
        if self._ended or self._broken:
            self._require_open("lookup")
        if self._lookups is None:
            one = self._answers == ON_ARRIVAL
            raise UserError(
                "lookup", expected="base rows of one stream" if one else "a query with answers='on arrival'",
                got=f"base rows of {sorted(self._come_last)}" if one else f"answers={self._answers!r}",
                hint="" if one else "query.live(answers='on arrival'), or features.online(...)",
            )  # fmt: skip
        return self._lookups(rows)

    @_in_turn
    def punctuate(
        self, below: Any, *, input: str | None = None, key: Mapping[str, Any] | None = None, on: Any = None
    ) -> pa.Table:
        """Promise that no row to come has a time below an instant; return what is now complete.

        The promise is about all inputs, or one of them. With `key`, it is about some values of key columns
        only: `key={"sensor": 7}`, or a list of values. With `on`, it is about the attribute that windows have
        as `on=`, in place of the time: no row to come has a value below this one.

        A promise that says less than an earlier one is an error, also that of a key: it may say less neither
        than those before about the key nor than those about all keys.
        """
        self._require_open("punctuate")
        names = [input] if input is not None else list(self._inputs)
        self._require_names("punctuate", names)
        its_time = isinstance(on, str) and all(on == self._inputs[name].time for name in names)
        if on is not None and not its_time:
            return self._punctuate_on(on, below, names, key)
        ticks = {name: self._inputs[name].instant(below) for name in names}
        if key is not None:
            if len(names) > 1:
                raise UserError("punctuate", expected=f"input= one of {names}, with key=", got="none")
            [name] = names
            keys = self._inputs[name].keyed(key)
            self._inputs[name].require_more(ticks[name], keys)
            return self._done(lambda: self._advance_keys(name, keys, ticks[name]))
        for name, t in ticks.items():
            self._inputs[name].require_more(t)
        for name, t in ticks.items():
            self._inputs[name].raise_to(t)
        if self._tables:
            return self._done(lambda: [*self._completed_tables(), *self._advance()])
        return self._done(self._advance)

    def _punctuate_on(self, on: Any, below: Any, names: list[str], key: Mapping[str, Any] | None) -> pa.Table:
        if len(names) > 1:
            raise UserError("punctuate", expected=f"input= one of {names}, with on=", got="none")
        if self._correct:
            raise UserError("punctuate", expected="no on= with Emit(correct=…)", got=str(on))
        [name] = names
        given = self._inputs[name]
        attribute = given.attributes.find(on)
        ticks, keys = attribute.at(below), None if key is None else given.keyed(key)
        given.attributes.require(attribute, ticks, keys)

        def work() -> Iterable[pa.RecordBatch]:
            yield from self._handed_over()
            if keys is None or keys:
                given.attributes.raise_to(attribute, ticks, keys)
                yield from self._emission.advance_on(name, attribute, ticks, keys)

        return self._done(work)

    @_in_turn
    def advance(self) -> pa.Table:
        """Look which inputs are idle, and return what is now complete. Call it from time to time."""
        self._require_open("advance")
        return self._done(self._advance)

    @_in_turn
    def flush(self) -> pa.Table:
        """End all inputs, and return the rest of the result. No more rows can be pushed."""
        self._require_open("flush")

        def work() -> Iterable[pa.RecordBatch]:
            yield from self._handed_over()
            yield from self._emission.flush()
            for given in self._inputs.values():
                given.raise_to(FOREVER)
            self._ended = True  # before subscribers hear of the rows: there is no state to save any more

        found = self._done(work)
        self.close()
        return found

    @_in_turn
    def close(self) -> None:
        """Stop. What is open is given up; `flush` returns it, and `checkpoint` saves it."""
        self._ended = True
        self._stop_writing()
        self._emission.close()
        for results in self._results:
            results.end()

    def __enter__(self) -> Live:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _taken(self, name: str, rows: pa.RecordBatch, *, late: bool) -> Iterable[pa.RecordBatch]:
        """Process rows of an input, or let them wait."""
        if self._delayed is None:
            return self._emission.push(name, rows, late=late)
        return self._pushed(self._delayed.add(name, rows, late))

    def _handed_over(self) -> Iterable[pa.RecordBatch]:
        """Process the rows that wait."""
        return () if self._delayed is None else self._pushed(self._delayed.take())

    def _pushed(self, waiting: Iterable[tuple[str, pa.RecordBatch, bool]]) -> Iterable[pa.RecordBatch]:
        for name, rows, late in waiting:
            yield from self._emission.push(name, rows, late=late)

    def _advance(self) -> list[pa.RecordBatch]:
        if self._idle is not None:
            self._hold_back_no_more()
        found = [] if self._delayed is None else list(self._handed_over())
        for name, given in self._inputs.items():
            promise = given.promise
            if promise > self._told[name] or self._by_rows:
                self._told[name] = promise
                found += self._emission.advance(name, promise)
        return found

    def _advance_keys(self, name: str, keys: dict[str, pa.Array], below: int) -> Iterable[pa.RecordBatch]:
        yield from self._handed_over()
        if keys:
            self._inputs[name].raise_keys(keys, below)
            yield from self._emission.advance_keys(name, keys, below)

    def _hold_back_no_more(self) -> None:
        """Give idle inputs the watermark of the others."""
        if self._idle is None:
            return
        idle = self._idle_inputs()
        active = [given.watermark for name, given in self._inputs.items() if name not in idle]
        for name in idle if active else ():
            self._inputs[name].held = max(self._inputs[name].held, min(active))

    def _idle_inputs(self) -> set[str]:
        if self._idle is None:
            return set()
        now = self._clock()
        return {name for name, last in self._last.items() if now - last >= self._idle}

    def _done(self, work: Callable[..., Iterable[pa.RecordBatch]], *args: Any) -> pa.Table:
        """Do some work, and return its rows. If it fails, the state is not known, and the query ends."""
        start = time.perf_counter()
        try:
            batches = list(work(*args))
            found = pa.Table.from_batches(batches, schema=self._schema) if batches else self._nothing
        except BaseException as failed:
            self._broken = f"{type(failed).__name__}: {failed}"
            self._stop_writing()
            self._emission.close()
            for results in self._results:
                results.end(failed)
            raise
        self._seconds += time.perf_counter() - start
        if found.num_rows:
            self._rows_out += found.num_rows
            self._tell(found)
        return found

    # -- sources that go on

    def read(
        self, sources: Mapping[str, Any] | None = None, /, *, checkpoint: str | PathLike[str] | None = None,
        every: DurationLike = "10s", late: LateTo | None = None, clock: Clock | None = None, **named: Any,
    ) -> Iterator[pa.Table]:  # fmt: skip
        """Read sources that go on, by the names of inputs, and yield tables of rows that are complete.

        A source is a `tm.follow(...)`, `tm.lines(...)`, `tm.socket_lines(...)`, `tm.replay(...)`,
        `tm.read_stream(...)`, or an iterator of rows. Each begins at its position in `positions`: after
        `tm.restore`, where the checkpoint was. Sources have their turns in the thread of the caller; the
        iteration ends when all have ended or were stopped, and the query can be read and pushed to again.

        With `checkpoint`, a path, there is one each `every` of real time, and at the end. Late rows go to
        `late`: a directory, which gets Parquet files, or a function of the name of the input and a table.
        `sources` is for inputs whose names are those of options.
        """
        options = Options(checkpoint, every, late, clock)
        return FeedReader(self, {**(sources or {}), **named}, options).tables()

    def read_async(
        self, sources: Mapping[str, Any] | None = None, /, *, checkpoint: str | PathLike[str] | None = None,
        every: DurationLike = "10s", late: LateTo | None = None, clock: Clock | None = None, **named: Any,
    ) -> AsyncIterator[pa.Table]:  # fmt: skip
        """As `read`, for `async for`. Sources may also be async iterators."""
        options = Options(checkpoint, every, late, clock)
        return FeedReader(self, {**(sources or {}), **named}, options).tables_async()

    @property
    def inputs(self) -> Mapping[str, LiveInput]:
        """The state of each input that is a stream."""
        return self._inputs

    @property
    def tables(self) -> Mapping[str, LiveTable]:
        """The state of each input that is a table."""
        return self._tables

    # -- results and counts

    def subscribe(self, callback: Callback) -> None:
        """Call a function with each table of new rows. If it fails, there is a warning, and it is counted."""
        if not callable(callback):
            raise UserError("subscribe", expected="a function of a table", got=f"{callback!r:.80}")
        self._callbacks.append(callback)

    @_in_turn
    def __aiter__(self) -> LiveResults:
        """Return the tables of new rows, from now on, for `async for`; they end when the query does."""
        self._require_open("async for")
        results = LiveResults()
        self._results.add(results)
        return results

    def _tell(self, found: pa.Table) -> None:
        for results in self._results:
            results.add(found)
        for callback in self._callbacks:
            try:
                callback(found)
            except Exception as failed:  # whatever a user's function raises: the query goes on
                self._failed_callbacks += 1
                warnings.warn(f"a subscriber failed: {type(failed).__name__}: {failed}", stacklevel=5)

    @_in_turn
    def late(self, input: str | None = None) -> pa.Table:
        """Return the rows of an input that were late or had no place, with the reason in `late_reason`."""
        return self._one("late", input).late()

    @_in_turn
    def take_late(self, input: str | None = None) -> pa.Table:
        """As `late`, and forget the rows. They stay counted."""
        return self._one("take_late", input).take_late()

    @_in_turn
    def refused(self) -> dict[str, pa.Table]:
        """Return the rows that an operator could not use, with the reason, by the name of the operator.

        Such are ends without a start, second starts, rows for which a condition on pairs failed, and rows of
        interval joins with a null key or without an interval. Of each input the newest 65,536 are there;
        `stats` counts all.
        """
        return {name: rows for name, (_, rows) in self._emission.refused().items()}

    @_in_turn
    def stats(self) -> LiveStats:
        """Return counts, watermarks and the size of the state."""
        idle = self._idle_inputs()
        inputs = {}
        for name, given in self._inputs.items():
            reasons = {reason.replace(" ", "_"): n for reason, n in given.counts.by_reason.items()}
            inputs[name] = InputStats(
                given.counts.events, **reasons, watermark=given.promise, idle=name in idle,
                domain=given.domain,
            )  # fmt: skip
        sizes = [step.operator.size() for step in self._emission.steps]
        partials, held = (sum(column) for column in zip(*sizes)) if sizes else (0, 0)
        return LiveStats(
            inputs, self._rows_out, partials, held, self._emission.before_start, self._failed_callbacks,
            self._seconds, {step.name: step.seconds for step in self._emission.steps},
            {name: table.rows for name, table in self._tables.items()},
            {name: count for name, (count, _) in self._emission.refused().items()},
        )  # fmt: skip

    def __repr__(self) -> str:
        state = f"ended by {self._broken}" if self._broken else "ended" if self._ended else "live"
        return f"{state} query\n{self.stats()!r}"

    # -- state

    @_in_turn
    def checkpoint(self, path: str | PathLike[str], *, keep: int | None = None) -> int:
        """Save the state, for `tm.restore`, and return how many bytes were written.

        A path that is a directory or ends in a slash is a directory of checkpoints: each writes what changed
        since the one before, and the newest `keep` of them stay (3 by default). With `keep`, any path is one.
        Any other path is a file with the whole state, which appears, or is replaced, when it is complete.
        """
        self._require_open("checkpoint")
        in_directory = is_directory(path, keep, step="checkpoint")
        again = self._writer is not None and self._writer.path == resolved(path, step="checkpoint")
        if not again and not in_directory:
            return files.write(Path(path), self._saved(self._emission.snapshot()))
        writer = self._writer_at(resolved(path, step="checkpoint"))
        whole = writer.writes_whole
        if whole:
            saved = self._saved(self._emission.snapshot())
        else:
            saved = self._saved(self._emission.changes(), since_last=True)
        written = writer.write(saved, whole=whole, keep=KEEP if keep is None else keep)
        self._track()
        return written

    def _saved(self, state: Snapshot, *, since_last: bool = False) -> files.Checkpoint:
        """Return a checkpoint of a state; of late rows, those since the last one in a directory, or all."""
        about = {
            "inputs": {name: given.saved() for name, given in self._inputs.items()},
            "tables": {name: table.saved() for name, table in self._tables.items()},
            "positions": self.positions, "rows_out": self._rows_out,
            "reached": {} if self._delayed is None else self._delayed.reached, "serves": self._serves,
            "answers": self._answers,
        }  # fmt: skip
        more = [name for name, given in self._inputs.items() if since_last and given.saved_late]
        rows = {name: given.late() for name, given in self._inputs.items()}
        rows |= {name: rows[name].slice(self._inputs[name].saved_late) for name in more}
        keys = {name: given.saved_keys() for name, given in self._inputs.items()}
        if self._delayed is not None:
            state |= {f"{_WAITING}{n}{_ROWS}": table for n, table in self._delayed.snapshot().items()}
        return files.Checkpoint(about, state, rows, keys, more)

    def _track(self) -> None:
        """Record what changes from now on, for the next checkpoint in a directory."""
        self._emission.track()
        for given in self._inputs.values():
            given.saved_late = 0 if given.late_changed else len(given.late())
            given.late_changed = False

    def _writer_at(self, path: Path) -> Writer:
        if self._writer is None or self._writer.path != path:
            self._stop_writing()
            self._writer = Writer(path, format_plan(self.plan, with_choices), self._restored)
        return self._writer

    def _stop_writing(self) -> None:
        """Let others write to the directory of checkpoints. From there on, all is written again."""
        if self._writer is not None:
            self._writer.close()
            self._writer = self._restored = None

    def load(self, path: str | PathLike[str]) -> None:
        """Continue from a checkpoint, before anything was pushed."""
        if is_directory(path, None, step="restore"):
            self._restored, saved = read_newest(resolved(path, step="restore"))
            self._load(saved)
            self._track()
        else:
            self._load(files.read(Path(path)))

    def _load(self, saved: files.Checkpoint) -> None:
        served = saved.about.get("serves", {})
        if self._serves and served != self._serves:
            wanted, got = (", ".join(f"{n} {v}" for n, v in one.items()) for one in (self._serves, served))
            raise UserError(
                "restore", expected=f"a checkpoint of {wanted}", got=f"one of {got or 'another query'}",
                hint="restore it with the definition that it was saved for, or start again without it",
            )  # fmt: skip
        if (answers := saved.about.get("answers", EXACT)) != self._answers:
            raise UserError(
                "restore", expected=f"answers={answers!r}, as the query had that was saved",
                got=repr(self._answers),
            )  # fmt: skip
        if set(saved.about["inputs"]) != set(self._inputs):
            raise UserError(
                "restore", expected=f"inputs {sorted(self._inputs)}", got=str(sorted(saved.about["inputs"]))
            )
        for name, table in self._tables.items():
            table.load(saved.about.get("tables", {}).get(name))
        waiting = {
            n[len(_WAITING) : -len(_ROWS)]: t for n, t in saved.state.items() if n.startswith(_WAITING)
        }
        if waiting and self._delayed is None:
            raise UserError("restore", expected="latency=, as rows of the checkpoint wait", got="none")
        if self._delayed is not None:
            self._delayed.restore(waiting, saved.about["reached"])
        self._emission.restore({n: t for n, t in saved.state.items() if not n.startswith(_WAITING)})
        for name, given in self._inputs.items():
            if self._says_nothing and saved.about["inputs"][name].get("follows") and not given.follows:
                raise UserError(
                    "restore", expected="disorder=, as the query had that was saved", got="none",
                    hint="its watermark followed the rows; tm.Disorder() says that it no longer does",
                )  # fmt: skip
        for name, given in self._inputs.items():
            given.load(saved.about["inputs"][name], saved.late[name], list(saved.keys[name].values()))
            self._told[name] = given.promise
        self.positions = dict(saved.about["positions"])
        self._rows_out = int(saved.about["rows_out"])

    # -- checks

    def _require_open(self, step: str) -> None:
        if self._broken:
            raise UserError(
                step, expected="a query that is live", got=f"one that ended by {self._broken}",
                hint="start again from the last checkpoint: tm.restore(query, path)",
            )  # fmt: skip
        if self._ended:
            raise UserError(
                step, expected="a query that is live", got="one that has ended",
                hint="query.live() starts another one",
            )  # fmt: skip

    def _require_names(self, step: str, names: Iterable[str], *, tables: bool = False) -> None:
        known = sorted([*self._inputs, *(self._tables if tables else ())])
        for name in names:
            if name not in known:
                timeless = name in self._tables
                hint = "a table has no time: push its rows before the first event" if timeless else ""
                raise UserError(step, expected=f"inputs {known}", got=repr(name), hint=hint)

    def _named(self, data: Any, batches: Mapping[str, Any]) -> dict[str, Any]:
        """Rows without a name, which are those of the one input."""
        names = sorted([*self._inputs, *self._tables])
        if batches or len(names) > 1:
            raise UserError(
                "push", expected="rows without a name for a query of one input only",
                got=f"{type(data).__name__} without a name, for {names}",
                hint=f"write push({', '.join(f'{n}=...' for n in names)})",
            )  # fmt: skip
        return {names[0]: data}

    def _positions(self, position: Any, batches: Mapping[str, Any]) -> dict[str, Any]:
        if position is None:
            return {}
        by_input = isinstance(position, dict) and bool(position) and set(position) <= set(self._inputs)
        if len(batches) == 1 and not by_input:
            position = {next(iter(batches)): position}
        if not isinstance(position, dict) or not set(position) <= set(batches):
            raise UserError("push", expected="position= a dict by input", got=f"{position!r:.80}")
        files.require_json(position)
        return position

    def _one(self, step: str, name: str | None) -> LiveInput:
        if name is None and len(self._inputs) > 1:
            raise UserError(step, expected=f"an input, one of {sorted(self._inputs)}", got="none")
        found = name if name is not None else next(iter(self._inputs))
        self._require_names(step, [found])
        return self._inputs[found]


def restored(live: Live, path: str | PathLike[str]) -> Live:
    """Load a checkpoint into a fresh live query; if that fails, it is closed."""
    try:
        live.load(path)
    except (TidemillError, KeyError, TypeError, ValueError) as failed:
        live.close()
        if isinstance(failed, TidemillError):
            raise
        raise UserError("restore", f"{path} is no checkpoint: {type(failed).__name__} {failed}") from failed
    return live
