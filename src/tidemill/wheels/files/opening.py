"""Sense is made of a save: what its manifest and its files say becomes a wheel, or is refused.

Files may come from anyone. What is said of a wheel goes through the rules for what a user may give, and all
numbers that kernels use are checked: see `wheels.checks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.aggregates.algebra import Aggregate
from tidemill.aggregates.json import from_record, to_record
from tidemill.codegen.algebra import numpy_type
from tidemill.core.errors import UserError
from tidemill.core.time import FARTHEST, Domain
from tidemill.core.types import to_arrow
from tidemill.expr.json import type_from_json
from tidemill.kernels.arrow import values
from tidemill.plan.nodes import WindowAggregate
from tidemill.wheels.files.checks import (
    a_bool,
    a_text,
    an_int,
    by_text,
    check_length,
    require,
    rings_from,
    texts,
)
from tidemill.wheels.files.directory import Save
from tidemill.wheels.files.mapped import column
from tidemill.wheels.loops.compressed import COLUMN, COLUMNS
from tidemill.wheels.loops.range_plan import MARKED
from tidemill.wheels.loops.slots import Slots
from tidemill.wheels.memory.compressed import Cold, Piece, Region
from tidemill.wheels.memory.packing import unpacked
from tidemill.wheels.memory.store import RingStore
from tidemill.wheels.objects.wheel import object_wheel
from tidemill.wheels.rings import Ring
from tidemill.wheels.spec import MOST_AHEAD, not_numbers, plan_of, power_of_two
from tidemill.wheels.wheel import Wheel

COLD = "cold"
"""Files of compressed slots are called so, with a number."""


def wheel_of(opened: Save, aggregates: Mapping[str, Aggregate], *, verify: bool) -> Wheel:
    with opened.understood():
        wheel = _understood(opened, aggregates)
    if not verify:
        wheel._unverified = list(opened.files.values())
    return wheel


def _understood(opened: Save, aggregates: Mapping[str, Aggregate]) -> Wheel:
    facts = opened.facts
    given, domain, rings, plan = what_it_is(facts, aggregates)
    ahead = facts["write ahead"]
    if not_numbers(plan):
        held = object_wheel(plan, rings, 0, domain, ahead, facts["one ring below"], given)
        held._store.restore({n: opened.table(n, s) for n, s in held._store.schemas().items()})
        wheel: Wheel = held
    else:
        wheel = Wheel(plan, _opened_store(opened, rings, plan), domain, ahead, given)
    _restore_keys(wheel, opened)
    schema = wheel._schema.to_arrow()
    for name, take in (("early", wheel._early.add), ("late", wheel._keep_late)):
        for rows in opened.table(name, schema).to_batches():
            times = rows.column(wheel._time)
            require(times.null_count == 0, f"times in all {name} rows", times.null_count)
            ticks = values(times)
            near = bool(((ticks >= -FARTHEST) & (ticks <= FARTHEST)).all())
            require(near, f"times of {name} rows within {FARTHEST}", "others")
            take(rows)
    wheel._name, wheel._merged = a_text(facts["name"], "a name"), by_text(facts["merged"], "merged", str)
    wheel._inserted = an_int(facts["rows"], "rows", 0, 1 << 62)
    wheel._left_out |= by_text(facts["left out"], "rows that were left out", int)
    wheel._line, wheel._opened = a_text(facts["line"], "a line"), wheel._seen
    return wheel


def _restore_keys(wheel: Wheel, opened: Save) -> None:
    """Know the keys. There must be as many as there are cells for."""
    names = wheel._plan.group_keys
    table = opened.table("keys", pa.schema([(n, to_arrow(wheel._schema[n])) for n in names]))
    count = wheel._store.keys
    if wheel._keyed:
        require(table.num_rows == count, f"{count} keys", table.num_rows)
        if count:
            wheel._keys.restore([table[k].combine_chunks() for k in names])
            require(wheel._keys.count == count, f"{count} different keys", wheel._keys.count)
    else:
        require(count == 1, "one number for no keys", count)


def _opened_store(opened: Save, rings: tuple[Ring, ...], plan: WindowAggregate) -> RingStore:
    facts = opened.facts
    slots = Slots(plan.layout)
    record = _columns_of(slots.open_type)
    head = column(opened.table("head", pa.schema({"head": pa.int64()})), "head")
    check_length(head, rings)
    rest = {
        "head": head,
        "totals": _from_records(opened.table("totals", record), slots.open_type),
        "ahead": _from_records(opened.table("open", record), slots.open_type),
    }
    kinds = "fx" if facts["prefix"] else "f"
    stored = [(f"{k}_{n}", numpy_type(t)) for k in kinds for n, t in slots.stored]
    marks = [(f"mark{m}", "?") for m in range(len(slots.marks))] if head[MARKED] else []
    table = opened.table("cells", _columns_of(np.dtype([*stored, *marks])))
    return unpacked(
        plan.layout, rings, power_of_two(facts["write ahead"]),
        {n: column(table, n) for n in table.column_names}, rest, prefix=facts["prefix"],
        threshold=facts["one ring below"], cold=_cold_of(opened, slots, len(rings)),
    )  # fmt: skip


def _cold_of(opened: Save, store: Slots, rings: int) -> Cold | None:
    said = opened.facts["compressed"]
    if said is None:
        return None
    slots = an_int(said["slots"], "slots to a block", 1, MOST_AHEAD)
    columns = len(store.stored) + len(store.marks)
    require(said["columns"] == columns, f"{columns} columns", said["columns"])
    regions = said["regions"]
    require(isinstance(regions, list) and len(regions) == rings, f"blocks of {rings} rings", regions)
    far = FARTHEST
    cold = Cold(
        slots, columns,
        [Region(*(an_int(n, "a number of blocks", -far, far) for n in (b, room, first, count)))
         for b, room, first, count in regions],
    )  # fmt: skip
    numbers = column(opened.table("blocks", pa.schema({"numbers": pa.int64()})), "numbers")
    cold.directory = numbers.reshape(-1, COLUMNS + COLUMN * columns).copy()
    for number in range(an_int(said["pieces"], "pieces", 0, len(opened.files))):
        name = f"{COLD}{number}"
        words = column(opened.table(name, pa.schema({"words": pa.uint64()})), "words")
        file = {**opened.facts["files"][name], "in": str(opened.path.resolve())}
        cold.pieces.append(Piece(words, len(words), file))
    cold.find_bases()
    return cold


def what_it_is(
    facts: Mapping[str, Any], aggregates: Mapping[str, Aggregate]
) -> tuple[dict[str, Aggregate], Domain, tuple[Ring, ...], WindowAggregate]:
    """What a wheel is. What is said may come from anyone: it is what a user may give, or refused."""
    given = _aggregates_of(facts["aggregates"], aggregates)
    rings, domain = store_rings(facts), Domain[facts["domain"]]
    require(isinstance(facts["schema"], dict), "columns by name", facts["schema"])
    schema = {str(n): type_from_json(t) for n, t in facts["schema"].items()}
    time, keys = a_text(facts["time"], "the column of time"), tuple(texts(facts["keys"], "keys"))
    plan = plan_of(given, schema, time, keys, rings, domain)
    prefix = a_bool(facts["prefix"], "prefix")
    an_int(facts["write ahead"], "slots ahead", 1, MOST_AHEAD)
    an_int(facts["one ring below"], "one ring below", 0, FARTHEST)
    compressed = facts.get("compressed") is not None
    plain = not (prefix or compressed) if not_numbers(plan) else not (prefix and compressed)
    plain = plain and (not prefix or Slots(plan.layout).subtracts)
    require(plain, "aggregates that have running sums, or are compressed", facts["aggregates"])
    return given, domain, rings, plan


def store_rings(facts: Mapping[str, Any]) -> tuple[Ring, ...]:
    """The rings of a store, of which the finest has the slots that all is counted in."""
    require(facts["domain"] in Domain.__members__, "a domain of time", facts["domain"])
    return rings_from(facts["rings"], Domain[facts["domain"]])


def _aggregates_of(
    records: Mapping[str, Any], given: Mapping[str, Aggregate]
) -> dict[str, Aggregate]:
    require(isinstance(records, dict), "aggregates by name", records)
    found = {}
    for name, record in records.items():
        if name in given:
            own = to_record(given[name]) if isinstance(record, dict) else str(given[name])
            if own != record:
                raise UserError(
                    "open wheel", expected=f"{name!r} as it was saved: {record}", got=str(given[name]),
                    hint="what is in the slots was made by that one",
                )  # fmt: skip
            found[name] = given[name]
        elif isinstance(record, dict):
            found[name] = from_record(record)
        else:
            raise UserError(
                "open wheel", expected=f"aggregates={{{name!r}: {record}}}", got="nothing by that name",
                hint="a user's own aggregates have code, which is not in files",
            )  # fmt: skip
    return found


def _columns_of(kind: np.dtype[Any]) -> pa.Schema:
    """The columns that records of NumPy are written as."""
    fields: Mapping[str, Any] = kind.fields or {}
    return pa.schema([(n, pa.from_numpy_dtype(fields[n][0])) for n in kind.names or ()])


def _from_records(table: pa.Table, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    found = np.zeros(table.num_rows, dtype=kind)
    for name in kind.names or ():
        found[name] = column(table, name)
    return found
