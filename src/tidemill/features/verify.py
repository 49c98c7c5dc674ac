"""Replay history through the online engine, and compare its features with those from history, row by row."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.errors import InternalError
from tidemill.core.schema import Schema
from tidemill.core.time import FARTHEST, Duration
from tidemill.core.types import INT64
from tidemill.features.definition import Definition
from tidemill.features.labels import entity_streams
from tidemill.features.same_values import same_values
from tidemill.io.sources import open_source
from tidemill.kernels.arrow import validity, values
from tidemill.local.live import Live
from tidemill.plan.disorder import Disorder
from tidemill.plan.nodes import Source, sources

ROW = "__row_number"
"""The number of a row of the entity, by which both answers are compared."""
WHY, SEED = "why", "seed"
Ints = npt.NDArray[np.int64]
Tables = dict[str, pa.Table]
MOST_PUSHES = 60
"""So many batches of an input at most, in a replay."""


@dataclass(frozen=True)
class Verification:
    """What came of replays: a bool that is true if the online engine gave the features that history has.

    `differing` has a row for each difference: `why` (`differs`, `missing` from the replay, `came twice`, or
    `not in history`), the seed of the replay, the row of the entity, and for each feature that differs
    somewhere its value from history and, as `online_...`, the one that the replay gave.
    """

    about: str
    rows: int
    """How many rows were compared, of all replays."""
    seeds: tuple[int, ...]
    differing: pa.Table
    by_feature: Mapping[str, int]
    """In how many rows each feature differs, if it does."""
    left_out: Mapping[str, int]
    """How many rows of each input have no time, so that no engine can use them."""

    def __bool__(self) -> bool:
        return not self.differing.num_rows

    def __repr__(self) -> str:
        seeds = ", ".join(map(str, self.seeds))
        found = self.differing.num_rows
        said = "none differs" if not found else f"{found:,} differ"
        lines = [
            f"{self.about}: {self.rows:,} rows compared in {len(self.seeds)} replays (seeds {seeds}), {said}"
        ]
        lines += [f"  {name}: {n:,} rows" for name, n in self.by_feature.items()]
        for why in ("missing", "came twice", "not in history"):
            if found and (n := self.differing[WHY].to_pylist().count(why)):
                lines.append(f"  {why}: {n:,} rows")
        lines += [f"  {name}: {n:,} rows without a time are left out" for name, n in self.left_out.items()]
        return "\n".join(lines)


def verify(
    definition: Definition, inputs: Mapping[str, Any], *, runs: int, seed: int,
    offline: Callable[[Definition, Tables], pa.Table], online: Callable[[Definition, Disorder], Live],
) -> Verification:  # fmt: skip
    """Compare what `online` gives for random replays with what `offline` gives for all rows at once."""
    definition = definition.with_labels(Schema(((ROW, INT64),)), step="verify")
    tables, left_out = _tables(definition, inputs)
    expected = _in_order(offline(definition, tables))
    seeds, found, compared = tuple(range(seed, seed + runs)), [], 0
    for one in seeds:
        given = _in_order(_replayed(definition, tables, one, online))
        compared += expected.num_rows
        found.append(_compared(definition, expected, given, one))
    by_feature = {
        f.name: n for f in definition.features if (n := sum(int(one.off[f.name].sum()) for one in found))
    }
    columns = [n for n in definition.entity.schema.names if n != ROW]
    shown = pa.concat_tables([one.table(columns, list(by_feature)) for one in found])
    return Verification(definition.title, compared, seeds, shown, by_feature, left_out)


# --- the sample -------------------------------------------------------------------------------------


def _tables(definition: Definition, inputs: Mapping[str, Any]) -> tuple[Tables, dict[str, int]]:
    """Read the sample. Rows of the entity get a number, rows without a time go and are counted."""
    tables, left_out, number = dict[str, pa.Table](), dict[str, int](), 0
    numbered = entity_streams(definition.entity)
    for source in sources(definition.plan):
        declared = Schema(tuple(f for f in source.declared if f[0] != ROW))
        plain = replace(source, declared=declared, ordered=False, step=f"verify {source.name}")
        chunks = [chunk.batch for chunk in open_source(inputs[source.name], plain, promises=False)]
        table = pa.Table.from_batches(chunks, schema=declared.to_arrow()).combine_chunks()
        if not source.table:
            usable = _has_time(table, source)
            if not usable.all():
                left_out[source.name] = int((~usable).sum())
                table = table.filter(pa.array(usable))
        if source.name in numbered:
            rows = np.arange(number, number + table.num_rows)
            table = table.append_column(ROW, pa.array(rows, pa.int64()))
            number += table.num_rows
        tables[source.name] = table
    return tables, left_out


def _times(table: pa.Table, source: Source) -> tuple[Ints, Any]:
    column = table.column(source.time).combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    return values(column), validity(column)


def _has_time(table: pa.Table, source: Source) -> npt.NDArray[np.bool_]:
    if not table.num_rows:
        return np.ones(0, dtype=np.bool_)
    ticks, valid = _times(table, source)
    near: npt.NDArray[np.bool_] = (ticks >= -FARTHEST) & (ticks <= FARTHEST)
    return near if valid is None else near & (valid != 0)


# --- replays ----------------------------------------------------------------------------------------


def _replayed(
    definition: Definition, tables: Tables, seed: int, online: Callable[[Definition, Disorder], Live]
) -> pa.Table:
    """Push a sample in a random interleaving, and return all rows of the result."""
    pick, draw = random.Random(seed), np.random.default_rng(seed)
    streams = [s for s in sources(definition.plan) if not s.table]
    spans = [int(np.ptp(_times(tables[s.name], s)[0])) for s in streams if tables[s.name].num_rows]
    span = max(spans, default=0)
    late = pick.choice([0, span // 1000, span // 20])
    disorder = Disorder(slack=Duration(late, definition.entity.domain))
    live, given = online(definition, disorder), []
    rest = {s.name: tables[s.name] for s in sources(definition.plan) if s.table}
    if rest:
        given.append(live.push(**rest))
    pushes = list(_pushes(streams, tables, late, pick, draw))
    stop = pick.randrange(len(pushes) + 1) if pick.random() < 0.5 else None
    for number, batches in enumerate(pushes):
        if number == stop:
            live = _again(live, definition, disorder, online)
        given.append(live.push(**batches))
    if live.stats().late:
        raise InternalError(f"a replay with seed {seed} made late rows", plan=definition.plan)
    given.append(live.flush())
    return pa.concat_tables(given)


def _pushes(
    streams: list[Source], tables: Tables, late: int, pick: random.Random, draw: np.random.Generator
) -> Iterator[Tables]:
    """Yield batches of one input or of several; rows come `late` ticks out of order at most."""
    parts: list[tuple[Any, str, pa.Table]] = []
    by_time = pick.random() < 0.5
    for source in streams:
        table = tables[source.name]
        if not table.num_rows:
            continue
        arrival = _times(table, source)[0] + draw.integers(0, late + 1, table.num_rows)
        order = np.argsort(arrival, kind="stable")
        table, arrival = table.take(pa.array(order)), arrival[order]
        cuts = draw.integers(0, table.num_rows, pick.randrange(MOST_PUSHES))
        bounds = [0, *np.unique(cuts[cuts > 0]).tolist(), table.num_rows]
        places = [int(arrival[low]) for low in bounds[:-1]] if by_time else sorted(
            pick.random() for _ in bounds[:-1])  # fmt: skip
        parts += [
            (place, source.name, table.slice(low, high - low))
            for place, low, high in zip(places, bounds, bounds[1:])
        ]
    parts.sort(key=lambda part: part[0])
    batches: Tables = {}
    for _, name, rows in parts:
        if name in batches or pick.random() < 0.7:
            if batches:
                yield batches
            batches = {}
        batches[name] = rows
    if batches:
        yield batches


def _again(
    live: Live, definition: Definition, disorder: Disorder, online: Callable[[Definition, Disorder], Live]
) -> Live:
    """Save the state of a live query, and go on with another one, as after a crash."""
    with tempfile.TemporaryDirectory(prefix="tidemill-verify-") as folder:
        path = Path(folder, "checkpoint")
        live.checkpoint(path)
        live.close()
        other = online(definition, disorder)
        other.load(path)
    return other


# --- comparing --------------------------------------------------------------------------------------


def _in_order(table: pa.Table) -> pa.Table:
    return table.sort_by(ROW).combine_chunks()


@dataclass(frozen=True)
class _Compared:
    """The rows of one replay beside those from history."""

    seed: int
    both: tuple[pa.Table, pa.Table]
    """Rows that both have, in one order."""
    off: Mapping[str, npt.NDArray[np.bool_]]
    """For each feature, in which of them it differs."""
    missing: pa.Table
    twice: pa.Table
    unknown: pa.Table

    def table(self, columns: list[str], features: list[str]) -> pa.Table:
        differs = np.zeros(self.both[0].num_rows, dtype=np.bool_)
        for mask in self.off.values():
            differs |= mask
        rows = pa.array(np.flatnonzero(differs))
        expected, given = (table.take(rows) for table in self.both)
        parts = [
            self._shown("differs", expected, expected, given, columns, features),
            self._shown("missing", self.missing, self.missing, None, columns, features),
            self._shown("came twice", self.twice, None, self.twice, columns, features),
            self._shown("not in history", self.unknown, None, self.unknown, columns, features),
        ]
        return pa.concat_tables(parts)

    def _shown(
        self, why: str, rows: pa.Table, expected: pa.Table | None, given: pa.Table | None,
        columns: list[str], features: list[str],
    ) -> pa.Table:  # fmt: skip
        found = {
            WHY: pa.array([why] * rows.num_rows, pa.string()),
            SEED: pa.array([self.seed] * rows.num_rows, pa.int64()),
            **{name: rows.column(name) for name in columns},
        }
        for name in features:
            for shown, table in ((name, expected), (f"online_{name}", given)):
                none = pa.nulls(rows.num_rows, rows.schema.field(name).type)
                found[shown] = none if table is None else table.column(name)
        return pa.table(found)


def _compared(definition: Definition, expected: pa.Table, given: pa.Table, seed: int) -> _Compared:
    numbers = [table.column(ROW).to_numpy() for table in (expected, given)]
    first = np.ones(len(numbers[1]), dtype=np.bool_)
    first[1:] = numbers[1][1:] != numbers[1][:-1]
    known, there = np.isin(numbers[1], numbers[0]), np.isin(numbers[0], numbers[1])
    both = (
        expected.filter(pa.array(there)).combine_chunks(),
        given.filter(pa.array(first & known)).combine_chunks(),
    )
    off = {f.name: ~same_values(*both, f.name, f.type) for f in definition.features}
    others = (given.filter(pa.array(mask)) for mask in (~first & known, ~known))
    return _Compared(seed, both, off, expected.filter(pa.array(~there)), *others)
