"""Wheels to and from directories of Arrow files; see `wheels.files` for how they are written."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.aggregates.algebra import Aggregate
from tidemill.aggregates.json import from_record, to_record
from tidemill.codegen.wheel import Slots
from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.time import Domain
from tidemill.local.wheel import Wheel, plan_of, power_of_two
from tidemill.local.wheel_queries import ALL, WheelQueries
from tidemill.plan.nodes import WindowAggregate
from tidemill.wheels.files import column, read_save, write_save
from tidemill.wheels.rings import Ring
from tidemill.wheels.shared import PATIENCE, Subscriber, is_shared
from tidemill.wheels.store import RingStore


def save(wheel: Wheel, path: str | os.PathLike[str]) -> None:
    """See `Wheel.save`."""
    if wheel._windows:
        raise UnsupportedError("wheel save", "windows that are open", instead="save without windows")
    cells, rest = wheel._store.packed()
    rows = np.arange(wheel._store.keys)
    keys = wheel._keys.decode(rows) if wheel._keyed else []
    schema = wheel._schema.to_arrow()
    files = {
        "cells": pa.table({n: pa.array(x) for n, x in cells.items()}),
        "head": pa.table({"head": rest["head"]}),
        "totals": _records(rest["totals"]),
        "open": _records(rest["ahead"]),
        "keys": pa.table(dict(zip(wheel._plan.group_keys, keys))),
        "early": pa.Table.from_batches(wheel._early.batches(), schema=schema),
        "late": wheel.late(),
    }
    write_save(Path(path), files, described(wheel))


def described(wheel: Wheel) -> dict[str, Any]:
    """What a wheel is, without what is in it."""
    aggregates = {n: to_record(a) for n, a in wheel._given.items()}
    return {
        "aggregates": {n: r or str(wheel._given[n]) for n, r in aggregates.items()},
        "schema": {n: repr(t) for n, t in wheel._schema}, "time": wheel._time,
        "keys": list(wheel._plan.group_keys), "domain": wheel._domain.name,
        "rings": [[r.ticks, r.slots, r.shown] for r in wheel._store.rings],
        "write ahead": wheel._write_ahead, "prefix": wheel._store.prefix,
        "one ring below": wheel._store.threshold, "name": wheel._name, "merged": wheel._merged,
        "rows": wheel._inserted, "left out": wheel._left_out,
    }  # fmt: skip


def open_wheel(
    path: str | os.PathLike[str], *, aggregates: Mapping[str, Aggregate] | None = None,
    save: int | None = None, verify: bool = True,
) -> Wheel | WheelReader:  # fmt: skip
    """A wheel from a directory: one that was saved there, or one that another process shares.

    Of a saved one, cells stay in the file, mapped to memory, until something changes; `verify` reads all
    files once, to compare checksums. A shared one can only be asked; it always answers as of now. A
    user's own `aggregates` are given again: files hold no code.
    """
    if is_shared(Path(path)):
        return WheelReader(Path(path), aggregates or {})
    return _open_save(Path(path), aggregates or {}, save, verify)


class WheelReader(WheelQueries):
    """A wheel that another process writes."""

    def __init__(self, path: Path, aggregates: Mapping[str, Aggregate]) -> None:
        self._source = Subscriber(path)
        facts = self._source.described
        _, domain, rings, plan = _kind_of(facts, aggregates)
        store = RingStore(
            plan.layout, rings, 0, 1, prefix=facts["prefix"], threshold=facts["one ring below"]
        )
        store.on_retry = self._again
        super().__init__(plan, store, domain)
        self._since = 0.0
        self._refresh()

    @property
    def watermark(self) -> Any:
        """How far the writer is."""
        if self._source.stale():
            self._refresh()
        return super().watermark

    def query(self, start: Any, end: Any, key: Any = ALL) -> Any:
        """See `WheelQueries.query`."""
        self._catch_up()
        return super().query(start, end, key)

    def _catch_up(self) -> None:
        if self._source.stale():
            self._refresh()
        if self._keyed:
            for keys in self._source.new_keys():  # in order, as the writer numbers them
                self._keys.encode([keys[k].combine_chunks() for k in self._plan.group_keys])
        self._since = 0.0

    def _refresh(self) -> None:
        self._source.attach(self._store)
        self._store.settle()

    def _again(self) -> None:
        """Slots are closing: read again, the newest arrays."""
        if self._source.stale():
            self._refresh()
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since > PATIENCE:
            raise UserError(
                "wheel query", expected="a writer that goes on", got=f"one that stopped {PATIENCE} s ago",
                hint="it died while slots were closing; open what it saved",
            )  # fmt: skip
        time.sleep(0)


def _kind_of(
    facts: Mapping[str, Any], aggregates: Mapping[str, Aggregate]
) -> tuple[dict[str, Aggregate], Domain, tuple[Ring, ...], WindowAggregate]:
    given = _aggregates_of(facts["aggregates"], aggregates)
    domain = Domain[facts["domain"]]
    rings = tuple(Ring(t, n, shown) for t, n, shown in facts["rings"])
    plan = plan_of(given, facts["schema"], facts["time"], tuple(facts["keys"]), rings, domain)
    return given, domain, rings, plan


def _open_save(
    path: Path, aggregates: Mapping[str, Aggregate], save: int | None, verify: bool
) -> Wheel:
    tables, facts = read_save(path, save, verify=verify)
    given, domain, rings, plan = _kind_of(facts, aggregates)
    ahead = power_of_two(facts["write ahead"])
    slots = Slots(plan.layout)
    rest = {
        "head": column(tables["head"], "head"),
        "totals": _from_records(tables["totals"], slots.open_type),
        "ahead": _from_records(tables["open"], slots.open_type),
    }
    cells = {n: column(tables["cells"], n) for n in tables["cells"].column_names if n[0] != "m"}
    for n in tables["cells"].column_names:
        if n[0] == "m":
            cells[n] = np.asarray(tables["cells"][n])
    store = RingStore.unpacked(
        plan.layout, rings, ahead, cells, rest, prefix=facts["prefix"],
        threshold=facts["one ring below"],
    )  # fmt: skip
    wheel = Wheel(plan, store, domain, facts["write ahead"], given)
    if wheel._keyed:
        wheel._keys.encode([tables["keys"][k].combine_chunks() for k in plan.group_keys])
    for rows in tables["early"].to_batches():
        wheel._early.add(rows)
    for rows in tables["late"].to_batches():
        wheel._keep_late(rows)
    wheel._name, wheel._merged = facts["name"], facts["merged"]
    wheel._inserted, wheel._left_out = facts["rows"], facts["left out"]
    return wheel


def _aggregates_of(
    records: Mapping[str, Any], given: Mapping[str, Aggregate]
) -> dict[str, Aggregate]:
    found = {}
    for name, record in records.items():
        if name in given:
            found[name] = given[name]
        elif isinstance(record, dict):
            found[name] = from_record(record)
        else:
            raise UserError(
                "open wheel", expected=f"aggregates={{{name!r}: {record}}}", got="nothing by that name",
                hint="a user's own aggregates have code, which is not in files",
            )  # fmt: skip
    return found


def _records(records: npt.NDArray[Any]) -> pa.Table:
    return pa.table({n: np.ascontiguousarray(records[n]) for n in records.dtype.names or ()})


def _from_records(table: pa.Table, kind: Any) -> npt.NDArray[Any]:
    found = np.zeros(table.num_rows, dtype=kind)
    for name in kind.names:
        found[name] = np.asarray(table[name])
    return found
