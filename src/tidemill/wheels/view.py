"""The read side of a wheel: a specification, a store of slots, and an index of keys."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.aggregates.algebra import Aggregate
from tidemill.aggregates.layout import Layout, Result
from tidemill.codegen.kernel_errors import raise_for
from tidemill.core.errors import UserError
from tidemill.core.forks import renew_locks
from tidemill.core.schema import Schema
from tidemill.core.time import Domain, instant, to_datetime
from tidemill.core.types import DataType, to_arrow
from tidemill.kernels.arrow import build
from tidemill.kernels.keys import KeyIndex
from tidemill.plan.wheel_facts import HeldRing, WheelFacts
from tidemill.wheels.loops.range_plan import LOW
from tidemill.wheels.memory.bucketed_store import Buckets
from tidemill.wheels.memory.store import NOT_ASKED, RingStore
from tidemill.wheels.objects.store import ObjectStore
from tidemill.wheels.spec import HIDDEN, WheelSpec

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Outputs = list[npt.NDArray[Any]]
"""For each result, an array of validity and an array of values, in turn."""
NOTHING_CLOSED, UNKNOWN_KEY, BEFORE_START = "nothing closed", "unknown key", "rows before the start"
"""The kinds of notes."""
ALL = object()
"""In place of a key: every key."""
MOST_NUMBERS = 1 << 16
"""The most key numbers that are cached."""
FIRST_DATE, LAST_DATE = instant("0001-01-01"), instant("9999-12-31")
"""The range of Python's datetimes, in ticks."""


class WheelView:
    """The state that queries read. Slots are numbered from the epoch, keys from 0."""

    def __init__(self, spec: WheelSpec, store: RingStore | Buckets) -> None:
        self.spec = spec
        self.store: Any = store
        self.plan, self.domain = spec.plan, spec.domain
        self.schema, self.grain = spec.plan.input.schema, spec.grain
        self.keyed = bool(spec.plan.group_keys)
        self.keys = KeyIndex(Schema(tuple((k, self.schema[k]) for k in spec.plan.group_keys)))
        self.seen: dict[Any, int] = {}
        """A cache of key numbers: looking one up takes longer than an answer."""
        self.results, self.shown = spec.plan.layout.results, spec.shown
        self.notes: dict[str, str] = {}
        """What explains answers without values, by kind: `stats` and `repr` show it."""
        self.new_locks()
        renew_locks(self)

    def new_locks(self) -> None:
        """Replace the locks: after a fork, the thread that held one does not exist."""
        self.lock = threading.Lock()
        """Guards the keys: a lookup while keys are added could find the wrong one."""
        if isinstance(self.store, ObjectStore):
            self.store.new_locks()

    def catch_up(self) -> None:
        """Read the latest changes of the writer, if that is another process."""

    # -- notes

    def note(self, kind: str, text: str) -> None:
        """Record why answers have no values, and warn: once for each kind."""
        if kind not in self.notes:
            self.notes[kind] = text
            frame, level = sys._getframe(1), 2
            while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("tidemill."):
                frame, level = frame.f_back, level + 1
            warnings.warn(f"wheel: {text}", UserWarning, stacklevel=level)

    def note_empty(self) -> None:
        """Note that no slot is closed yet, if that is why an answer has no values."""
        if self.store.now == self.store.first:
            start = self.instant(self.beginning)
            self.note(NOTHING_CLOSED, f"no slot is closed yet, the watermark is at the start, {start}: there "
                      "are no rows in answers before advance_to")  # fmt: skip

    def note_unknown(self, key: Any) -> None:
        """Note that a query asked for a key that never had a row."""
        self.note(UNKNOWN_KEY, f"no row ever had the key {key!r}: its answers have no rows")

    # -- time

    @property
    def beginning(self) -> int:
        """The first tick of the wheel."""
        return int(self.store.first) * self.grain

    def instant(self, ticks: int) -> Any:
        """A datetime for clock time; ticks for logical time and outside the range of datetimes."""
        readable = self.domain is Domain.CLOCK and FIRST_DATE <= ticks <= LAST_DATE
        return to_datetime(ticks) if readable else ticks

    def closed(self) -> tuple[int, Ints]:
        """The first open slot, and the numbers of the keys that had rows before it."""
        self.catch_up()
        now = self.store.now
        self.catch_up()  # keys are published before their slots close: now all keys below `now` are known
        numbers = self.numbers(ALL)
        return now, numbers[numbers < self.keys.count]

    def facts(self) -> WheelFacts:
        """The facts about this wheel that the optimizer needs."""
        self.catch_up()
        store, plan = self.store, self.plan
        shown = tuple((n, a) for n, a in plan.aggregates if not n.startswith(HIDDEN))
        rings = tuple(
            HeldRing(ring.ticks, ring.shown, int(store.ring(r)[LOW]) * ring.ticks)
            for r, ring in enumerate(store.rings)
        )
        return WheelFacts(replace(plan, aggregates=shown), rings, store.now * self.grain)

    def not_held(self, a: int, b: int) -> UserError:
        """The error for a range of slots that the rings do not hold."""
        held = [
            f"{ring.shown} since {self.instant(int(self.store.ring(r)[LOW]) * ring.ticks)}"
            for r, ring in enumerate(self.store.rings)
        ]
        return UserError(
            "query", expected=f"a range that the rings still hold: {', '.join(held)}",
            got=f"[{self.instant(a * self.grain)}, {self.instant(b * self.grain)})",
            hint="query on a coarser grid, or make the wheel with more retention",
        )  # fmt: skip

    # -- keys

    @property
    def key_count(self) -> int:
        """The keys that had rows. Null has a number among texts, whether it came or not."""
        known: int = self.store.keys
        text = [kind.kind in ("string", "binary") for _, kind in self.keys.schema] == [True]
        return known - 1 if text and known and not self.store.had_rows(0) else known

    def number(self, key: Any) -> int:
        """The number of a key, or -1 if it never occurred."""
        given = tuple(key) if isinstance(key, tuple) else (key,)
        number = int(self._find([[g] for g in given])[0])
        if number < 0:
            self.note_unknown(key)
        elif type(key) is int or type(key) is str:
            if len(self.seen) >= MOST_NUMBERS:
                self.seen.clear()
            self.seen[key] = number
        return number

    def number_seen(self, key: Any) -> int | None:
        """The cached number of an int or str key; None if it must be looked up."""
        return self.seen.get(key) if type(key) is int or type(key) is str else None

    def numbers(self, keys: Any) -> Ints:
        """The numbers of several keys; for `ALL`, of every key that had rows."""
        if keys is ALL:
            found: Ints = self.store.present
            return found
        listed = keys.to_pylist() if isinstance(keys, pa.Array) else list(keys)
        several = len(self.plan.group_keys) > 1
        numbers = self._find([list(c) for c in zip(*listed)] if several else [listed])
        if (numbers < 0).any():
            self.note_unknown(listed[int(numbers.argmin())])
        return numbers

    def numbers_of(self, columns: list[pa.Array]) -> Ints:
        """The numbers of keys, given as columns."""
        with self.lock:
            return self.keys.find(columns)

    def _find(self, columns: list[list[Any]]) -> Ints:
        names = self.plan.group_keys
        if not names:
            raise UserError("query", expected="no key: the wheel has no keys", got="one")
        if len(columns) != len(names):
            raise UserError("query", expected=f"a key for {list(names)}", got=f"{len(columns)} values")
        try:
            arrays = [
                pa.array(c, type=to_arrow(self.schema[n])) for c, n in zip(columns, names)
            ]
        except (pa.ArrowInvalid, UnicodeEncodeError, pa.ArrowTypeError) as wrong:
            raise UserError(
                "query", expected=", ".join(f"{n}: {self.schema[n]!r}" for n in names), got=str(columns)
            ) from wrong
        return self.numbers_of(arrays)

    def key_columns(self, numbers: Ints) -> dict[str, pa.Array]:
        """Key columns for key numbers."""
        with self.lock:
            return dict(zip(self.plan.group_keys, self.keys.decode(numbers)))

    # -- answers

    def layout_for(self, aggregates: Iterable[tuple[str, Aggregate]], step: str) -> Layout:
        """The layout of the slots with other results. A result that needs a part they lack is an error."""
        plan, results = self.plan, []
        asked = replace(plan, aggregates=tuple(aggregates)).layout
        for result in asked.results:
            found = plan.layout.derived(asked, result)
            if found is None:
                held = ", ".join(f"{n}={a}" for n, a in plan.aggregates if not n.startswith(HIDDEN))
                raise UserError(
                    step, expected=f"aggregates made of what the wheel holds: {held}",
                    got=f"{result.name}={result.shown}", hint=self._hint(asked, result),
                )  # fmt: skip
            results.append(found)
        return replace(plan.layout, results=tuple(results))

    def _hint(self, asked: Layout, result: Result) -> str:
        """What a wheel must hold for a result: the parts that are missing, or all of it."""
        held = self.plan.layout
        whole = {p.part for i, p in enumerate(held.parts) if i not in held.presence_only}
        wanted = [asked.parts[p].part for p in result.parts]
        missing = [str(p) for p in wanted if p not in whole]
        needed = missing if len(missing) < len(wanted) else [result.shown]
        return f"make a wheel that holds {', '.join(needed)}, too"

    def answers(
        self, starts: Ints, ends: Ints, numbers: Ints, asked: Layout | None = None, *,
        total: bool = False, rows: Bools = NOT_ASKED,
    ) -> Outputs:  # fmt: skip
        """The results of a range of slots for each key, or of one range for all keys.

        With `total`, the results of each range over all these keys together. `asked` replaces the wheel's
        own results. `rows`, if given, receives whether there was any row.
        """
        outputs: Outputs
        if asked is None and not total:
            outputs = self.store.outputs(self.results, len(numbers))
            bad, err = self.store.answers(starts, ends, numbers, outputs, rows)
        else:
            held = self.plan.layout if asked is None else asked
            count = len(starts) if total else len(numbers)
            a, b = (np.ascontiguousarray(np.broadcast_to(x, count)) for x in (starts, ends))
            outputs = self.store.outputs(held.results, count)
            partials = self.store.no_partials(count)
            bad, err = self.store.fold(a, b, numbers, total, partials)
            if bad < 0:
                err |= self.store.lower(partials, held, outputs)
                if len(rows):
                    rows[...] = self.store.any_rows(partials)
        if bad >= 0:
            raise self.not_held(int(starts[bad]), int(ends[bad]))
        self.note_empty()
        raise_for(err, "wheel query")
        return outputs

    def column(self, values: Any, valid: Any, kind: DataType) -> pa.Array:
        """Build an Arrow column from values and validity."""
        if self.spec.objects:
            return pa.array(values.tolist(), to_arrow(kind))  # invalid values are None
        return build(values, valid, to_arrow(kind))

    def table(self, outputs: Outputs, asked: Layout | None = None) -> pa.Table:
        """The results that users see, as columns."""
        results = self.shown if asked is None else asked.results
        return pa.table(
            {
                r.name: self.column(outputs[2 * j + 1], outputs[2 * j], r.type)
                for j, r in enumerate(results)
            }
        )

    def plain(self, value: Any, kind: DataType) -> Any:
        """A result as a Python value."""
        if self.spec.objects:
            return pa.array([value], to_arrow(kind))[0].as_py()
        if kind.kind == "timestamp" and not FIRST_DATE <= value <= LAST_DATE:
            return int(value)  # as `instant`
        if kind.kind in ("timestamp", "duration"):
            return pa.scalar(int(value), pa.int64()).cast(to_arrow(kind)).as_py()
        return bool(value) if kind.kind == "bool" else value
