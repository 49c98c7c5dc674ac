"""Open a save as the state of a wheel; an invalid file is an error.

Files are untrusted. The description of a wheel must pass the checks for user arguments, and all numbers that
kernels use are checked: see `files.checks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
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
from tidemill.wheels.closing_windows import ClosingWindows
from tidemill.wheels.files.cell_tables import cell_schemas, restore_cells
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
from tidemill.wheels.files.format import Save
from tidemill.wheels.files.mapped import column
from tidemill.wheels.files.packed import unpacked
from tidemill.wheels.files.sparse_tables import restore_sparse, sparse_schemas
from tidemill.wheels.loops.bit_packing import COLUMN, COLUMNS
from tidemill.wheels.loops.range_plan import MARKED
from tidemill.wheels.loops.slots import SlotLayout
from tidemill.wheels.memory.compressed import BlockBuffer, CompressedBlocks, Region
from tidemill.wheels.memory.sparse_store import SparseStore
from tidemill.wheels.memory.store import RingStore
from tidemill.wheels.memory.window_state import WindowState
from tidemill.wheels.objects.store import ObjectStore
from tidemill.wheels.rings import Ring
from tidemill.wheels.spec import MOST_AHEAD, WheelSpec, plan_of
from tidemill.wheels.state import WheelState, empty_state
from tidemill.wheels.tuning import DEFAULT, WheelTuning
from tidemill.windows.spec import Session, Sliding, Window, hopping, session

BLOCK_FILES = "cold"
"""The prefix of the names of files of compressed slots, before a number."""
WINDOW = "window"
"""The prefix of the names of files of open windows, before a number."""


def state_of(
    opened: Save, aggregates: Mapping[str, Aggregate], *, verify: bool, tuning: WheelTuning = DEFAULT
) -> WheelState:
    """Open the wheel of a save. Without `verify`, checksums are compared before it is saved or merged."""
    with opened.understood():
        state = _understood(opened, replace(spec_of(opened.facts, aggregates), tuning=tuning))
    if not verify:
        state.unverified = [file.verify for file in opened.files.values()]
    return state


def _understood(opened: Save, spec: WheelSpec) -> WheelState:
    facts = opened.facts
    if spec.objects:
        state = empty_state(spec, 0)
        assert isinstance(state.store, ObjectStore)
        tables = {n: opened.table(n, s) for n, s in cell_schemas(spec.plan.layout).items()}
        restore_cells(state.store, tables)
    elif facts["format"] > 2 and a_bool(facts["sparse"], "sparse"):
        plain = not (spec.prefix or facts["compressed"] or facts.get("windows"))
        require(plain, "a sparse wheel without windows, running sums and compression", "one with them")
        state = empty_state(spec, 0, sparse=True)
        assert isinstance(state.store, SparseStore)
        tables = {n: opened.table(n, s) for n, s in sparse_schemas(state.store).items()}
        restore_sparse(state.store, tables)
    else:
        state = WheelState(spec, _opened_store(opened, spec))
    _restore_keys(state, opened)
    for name, take in (("early", state.early.add), ("late", state.keep_late)):
        for rows in opened.table(name, state.arrow).to_batches():
            times = rows.column(state.time)
            require(times.null_count == 0, f"times in all {name} rows", times.null_count)
            ticks = values(times)
            near = bool(((ticks >= -FARTHEST) & (ticks <= FARTHEST)).all())
            require(near, f"times of {name} rows within {FARTHEST}", "others")
            take(rows)
    lineage = state.lineage
    lineage.name, lineage.line = a_text(facts["name"], "a name"), a_text(facts["line"], "a line")
    lineage.merged = by_text(facts["merged"], "merged", str)
    state.inserted = an_int(facts["rows"], "rows", 0, 1 << 62)
    state.left_out |= by_text(facts["left out"], "rows that were left out", int)
    if facts["format"] > 2:
        state.notes = by_text(facts["notes"], "notes", str)
    _restore_windows(state, opened)
    lineage.opened = state.version
    return state


def _restore_windows(state: WheelState, opened: Save) -> None:
    """Restore the open windows."""
    said = opened.facts.get("windows", [])
    require(isinstance(said, list) and not (said and state.spec.objects), "a list of windows", said)
    specs: dict[str, Window] = {}
    held: dict[str, WindowState] = {}
    keys, store = state.store.keys, state.store
    shape = ClosingWindows(state.plan, store, state.domain, state.keys, state.look_at)
    for number, facts in enumerate(said):
        label = a_text(facts["label"], "the label of a window")
        require(label not in specs, "windows with unique names", label)
        specs[label] = spec = _window_of(facts, state.domain, store)
        numbers = facts["numbers"]
        listed = isinstance(numbers, list) and len(numbers) == (0 if isinstance(spec, Session) else 2)
        require(listed, f"the numbers of window {label}", numbers)
        numbers = [an_int(n, "a number of a window", -FARTHEST, FARTHEST) for n in numbers]
        shape.add(spec, label, numbers[0] if numbers else None)
        rows, kind = shape.shapes(label)
        table, count = opened.table(f"{WINDOW}{number}", _columns_of(kind)), sum(rows.values())
        require(table.num_rows == count * keys, f"{count} records of {keys} keys", table.num_rows)
        ends = np.cumsum(list(rows.values()))[:-1]
        split = np.split(_from_records(table, kind).reshape(count, keys), ends)
        held[label] = WindowState(numbers, dict(zip(rows, split)))
    state.windows.restore(specs, held)


def _window_of(facts: Mapping[str, Any], domain: Domain, store: RingStore) -> Window:
    def length(name: str) -> Any:
        ticks = an_int(facts[name], f"{name} of a window", 1, FARTHEST)
        return ticks if domain is Domain.LOGICAL else f"{ticks}us"

    if "gap" in facts:
        return session(length("gap"))
    origin = an_int(facts["origin"], "the origin of a window", -FARTHEST, FARTHEST)
    start = facts["start"]
    if start is not None:
        start = an_int(start, "the start of a window", -FARTHEST, FARTHEST)
    spec = hopping(length("range"), every=length("every"))
    assert isinstance(spec, Sliding)
    need = (2 * (spec.length // spec.slide) + 4) * store.room * store.fresh.itemsize * 2
    most = store.tuning.most_bytes
    require(need <= most, f"a window that takes at most {most} bytes", need)
    return replace(spec, origin=origin, start=start)


def _restore_keys(state: WheelState, opened: Save) -> None:
    """Restore the keys; their number must match the head."""
    names = state.plan.group_keys
    table = opened.table("keys", pa.schema([(n, to_arrow(state.schema[n])) for n in names]))
    count = state.store.keys
    if state.keyed:
        require(table.num_rows == count, f"{count} keys", table.num_rows)
        if count:
            state.keys.restore([table[k].combine_chunks() for k in names])
            require(state.keys.count == count, f"{count} different keys", state.keys.count)
    else:
        require(count == 1, "one number for no keys", count)


def _opened_store(opened: Save, spec: WheelSpec) -> RingStore:
    slots, rings = SlotLayout(spec.plan.layout), spec.rings
    record = _columns_of(slots.open_type)
    head = column(opened.table("head", pa.schema({"head": pa.int64()})), "head")
    check_length(head, rings)
    rest = {
        "head": head,
        "totals": _from_records(opened.table("totals", record), slots.open_type),
        "ahead": _from_records(opened.table("open", record), slots.open_type),
    }
    kinds = "fx" if spec.prefix else "f"
    stored = [(f"{k}_{n}", numpy_type(t)) for k in kinds for n, t in slots.stored]
    marks = [(f"mark{m}", "?") for m in range(len(slots.marks))] if head[MARKED] else []
    table = opened.table("cells", _columns_of(np.dtype([*stored, *marks])))
    return unpacked(
        spec.plan.layout, rings, spec.open_slots,
        {n: column(table, n) for n in table.column_names}, rest, prefix=spec.prefix,
        threshold=spec.one_ring_below, blocks=_blocks_of(opened, slots, len(rings)),
        tuning=spec.tuning,
    )  # fmt: skip


def _blocks_of(opened: Save, store: SlotLayout, rings: int) -> CompressedBlocks | None:
    said = opened.facts["compressed"]
    if said is None:
        return None
    slots = an_int(said["slots"], "slots to a block", 1, MOST_AHEAD)
    columns = len(store.stored) + len(store.marks)
    require(said["columns"] == columns, f"{columns} columns", said["columns"])
    regions = said["regions"]
    require(isinstance(regions, list) and len(regions) == rings, f"blocks of {rings} rings", regions)
    far = FARTHEST
    blocks = CompressedBlocks(
        slots, columns,
        [Region(*(an_int(n, "a number of blocks", -far, far) for n in (b, room, first, count)))
         for b, room, first, count in regions],
    )  # fmt: skip
    numbers = column(opened.table("blocks", pa.schema({"numbers": pa.int64()})), "numbers")
    blocks.directory = numbers.reshape(-1, COLUMNS + COLUMN * columns).copy()
    for number in range(an_int(said["pieces"], "pieces", 0, len(opened.files))):
        name = f"{BLOCK_FILES}{number}"
        words = column(opened.table(name, pa.schema({"words": pa.uint64()})), "words")
        file = {**opened.facts["files"][name], "in": str(opened.path.resolve())}
        blocks.buffers.append(BlockBuffer(words, len(words), file))
    blocks.find_bases()
    return blocks


def spec_of(facts: Mapping[str, Any], aggregates: Mapping[str, Aggregate]) -> WheelSpec:
    """Read the specification of a wheel. It is untrusted: it must pass the checks for user arguments."""
    given = _aggregates_of(facts["aggregates"], aggregates)
    rings, domain = store_rings(facts), Domain[facts["domain"]]
    require(isinstance(facts["schema"], dict), "columns by name", facts["schema"])
    schema = {str(n): type_from_json(t) for n, t in facts["schema"].items()}
    time, keys = a_text(facts["time"], "the column of time"), tuple(texts(facts["keys"], "keys"))
    plan = plan_of(given, schema, time, keys, rings, domain)
    prefix = a_bool(facts["prefix"], "prefix")
    ahead = an_int(facts["write ahead"], "slots ahead", 1, MOST_AHEAD)
    below = an_int(facts["one ring below"], "one ring below", 0, FARTHEST)
    spec = WheelSpec(plan, rings, domain, given, ahead, prefix, below)
    compressed = facts.get("compressed") is not None
    plain = not (prefix or compressed) if spec.objects else not (prefix and compressed)
    plain = plain and (not prefix or SlotLayout(plan.layout).subtracts)
    require(plain, "aggregates that have running sums, or are compressed", facts["aggregates"])
    return spec


def store_rings(facts: Mapping[str, Any]) -> tuple[Ring, ...]:
    """Read the rings of a store."""
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
                    hint="the slots were computed with that aggregate",
                )  # fmt: skip
            found[name] = given[name]
        elif isinstance(record, dict):
            found[name] = from_record(record)
        else:
            raise UserError(
                "open wheel", expected=f"aggregates={{{name!r}: {record}}}", got="no such aggregate",
                hint="user-defined aggregates have code, which is not in files",
            )  # fmt: skip
    return found


def _columns_of(kind: np.dtype[Any]) -> pa.Schema:
    """The Arrow columns in which NumPy records are written."""
    fields: Mapping[str, Any] = kind.fields or {}
    return pa.schema([(n, pa.from_numpy_dtype(fields[n][0])) for n in kind.names or ()])


def _from_records(table: pa.Table, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    found = np.zeros(table.num_rows, dtype=kind)
    for name in kind.names or ():
        found[name] = column(table, name)
    return found
