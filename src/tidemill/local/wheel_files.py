"""Wheels to and from directories of Arrow files; see `wheels.files` for how they are written."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.aggregates.algebra import Aggregate
from tidemill.aggregates.json import from_record, to_record
from tidemill.codegen.wheel_cold import COLUMN, COLUMNS
from tidemill.codegen.wheel_slots import Slots
from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.time import Domain
from tidemill.local.object_store import ObjectStore
from tidemill.local.object_wheel import object_wheel
from tidemill.local.wheel import Wheel
from tidemill.local.wheel_kind import not_numbers, plan_of, power_of_two
from tidemill.local.wheel_queries import ALL, WheelQueries
from tidemill.plan.nodes import WindowAggregate
from tidemill.wheels.buckets import Buckets
from tidemill.wheels.cold import Cold, Piece, Region
from tidemill.wheels.files import FilesGone, column, read_save, write_save
from tidemill.wheels.packing import packed, unpacked
from tidemill.wheels.rings import Ring
from tidemill.wheels.shared import PATIENCE, Subscriber, is_shared
from tidemill.wheels.store import RingStore

BUCKETS = "buckets"
"""What the manifest of a wheel in buckets says of them."""
COLD = "cold"
"""Files of compressed slots are called so, with a number."""


def save(wheel: Wheel, path: str | os.PathLike[str], *, forget: bool = True) -> int:
    """See `Wheel.save`. The number of the save; old ones are removed, unless someone else does so."""
    if wheel._windows:
        raise UnsupportedError("wheel save", "windows that are open", instead="save without windows")
    directory = Path(path).resolve()
    rows = np.arange(wheel._store.keys)
    keys = wheel._keys.decode(rows) if wheel._keyed else []
    schema = wheel._schema.to_arrow()
    files = {
        **_store_files(wheel._store, directory),
        "keys": pa.table(dict(zip(wheel._plan.group_keys, keys))),
        "early": pa.Table.from_batches(wheel._early.batches(), schema=schema),
        "late": wheel.late(),
    }
    try:
        saved = write_save(directory, files, described(wheel), forget=forget)
    except FilesGone:  # another process has saved there meanwhile, and removed ours
        return save(wheel, path, forget=forget)
    if wheel._store.cold is not None:
        for number, piece in enumerate(wheel._store.cold.pieces):
            piece.file = {**saved.files[f"{COLD}{number}"], "in": str(directory)}
    return saved.number


def _store_files(store: RingStore, directory: Path) -> dict[str, Any]:
    if isinstance(store, ObjectStore):
        return store.tables()
    cold = _compressed(store, directory)
    cells, rest = packed(store)
    return {
        "cells": pa.table({n: pa.array(x) for n, x in cells.items()}),
        "head": pa.table({"head": rest["head"]}),
        "totals": _records(rest["totals"]),
        "open": _records(rest["ahead"]),
        **cold,
    }


def _compressed(store: RingStore, directory: Path) -> dict[str, Any]:
    """The directory of blocks as a table; pieces that lie there already, and those that do not."""
    for piece in store.cold.pieces if store.cold is not None else ():
        known = piece.file  # other saves may have been made there since
        if known and (known["in"] != str(directory) or not (directory / known["file"]).exists()):
            piece.file = None
    cold = store.seal()
    if cold is None:
        return {}
    files: dict[str, Any] = {"blocks": pa.table({"numbers": cold.directory.ravel()})}
    for number, piece in enumerate(cold.pieces):
        known = piece.file
        files[f"{COLD}{number}"] = (
            pa.table({"words": piece.words}) if known is None
            else {k: v for k, v in known.items() if k != "in"}
        )  # fmt: skip
    return files


def _cold_of(facts: Mapping[str, Any], tables: Mapping[str, pa.Table], path: Path) -> Cold | None:
    if not facts["compressed"]:
        return None
    slots, columns = facts["compressed"]["slots"], facts["compressed"]["columns"]
    regions = [Region(*numbers) for numbers in facts["compressed"]["regions"]]
    cold = Cold(slots, columns, regions)
    cold.directory = column(tables["blocks"], "numbers").reshape(-1, COLUMNS + COLUMN * columns).copy()
    for number in range(facts["compressed"]["pieces"]):
        words = column(tables[f"{COLD}{number}"], "words")
        file = {**facts["files"][f"{COLD}{number}"], "in": str(path.resolve())}
        cold.pieces.append(Piece(words, len(words), file))
    cold.find_bases()
    return cold


def described(wheel: Wheel) -> dict[str, Any]:
    """What a wheel is, without what is in it."""
    aggregates = {n: to_record(a) for n, a in wheel._given.items()}
    cold = wheel._store.cold
    return {
        "aggregates": {n: r or str(wheel._given[n]) for n, r in aggregates.items()},
        "schema": {n: repr(t) for n, t in wheel._schema}, "time": wheel._time,
        "keys": list(wheel._plan.group_keys), "domain": wheel._domain.name,
        "rings": [[r.ticks, r.slots, r.shown] for r in wheel._store.rings],
        "write ahead": wheel._write_ahead, "prefix": wheel._store.prefix,
        "one ring below": wheel._store.threshold, "name": wheel._name, "merged": wheel._merged,
        "line": wheel.id[len(wheel._name) :].split("@")[0],
        "rows": wheel._inserted, "left out": wheel._left_out,
        "compressed": None if cold is None else {
            "slots": cold.slots, "columns": cold.columns, "pieces": len(cold.pieces),
            "regions": [[r.begin, r.room, r.first, r.count] for r in cold.regions],
        },
    }  # fmt: skip


def open_wheel(
    path: str | os.PathLike[str], *, aggregates: Mapping[str, Aggregate] | None = None,
    save: int | None = None, verify: bool = True,
) -> Wheel | WheelReader | WheelStore:  # fmt: skip
    """A wheel from a directory: saved there, built there by Spark, or shared by another process.

    Of a saved one, cells stay in the file, mapped to memory, until something changes; `verify` reads all
    files once, to compare checksums. A shared one can only be asked; it always answers as of now. One
    that Spark built can only be asked, too; `wheel()` of it goes on. A user's own `aggregates` are given
    again: files hold no code.
    """
    if is_shared(Path(path)):
        return WheelReader(Path(path), aggregates or {})
    tables, facts = read_save(Path(path), save, verify=verify)
    if BUCKETS in facts:
        return WheelStore(Path(path), facts, aggregates or {}, verify=verify)
    return _opened(Path(path), tables, facts, aggregates or {})


class WheelReader(WheelQueries):
    """A wheel that another process writes."""

    _store: RingStore

    def __init__(self, path: Path, aggregates: Mapping[str, Aggregate]) -> None:
        self._source = Subscriber(path)
        facts = self._source.described
        _, domain, rings, plan = _kind_of(facts, aggregates)
        store = RingStore(
            plan.layout, rings, 0, 1, prefix=facts["prefix"], threshold=facts["one ring below"]
        )
        store.on_retry = self._again
        self._catching_up = threading.RLock()
        """Of what the writer did meanwhile, one thread takes note at a time."""
        super().__init__(plan, store, domain)
        self._since = 0.0
        self._refresh()

    @property
    def watermark(self) -> Any:
        """How far the writer is."""
        self._catch_up()
        return super().watermark

    def query(self, start: Any, end: Any, key: Any = ALL) -> Any:
        """See `WheelQueries.query`."""
        self._catch_up()
        return super().query(start, end, key)

    def _catch_up(self) -> None:
        with self._catching_up:
            if self._source.stale():
                self._refresh()
            if self._keyed:
                for keys in self._source.new_keys():  # in order, as the writer numbers them
                    with self._lock:
                        self._keys.restore([keys[k].combine_chunks() for k in self._plan.group_keys])
            self._since = 0.0

    def _refresh(self) -> None:
        self._source.attach(self._store)
        self._store.settle()

    def _again(self) -> None:
        """Slots are closing: read again, the newest arrays."""
        with self._catching_up:
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


def open_save(
    path: Path, aggregates: Mapping[str, Aggregate], save: int | None = None, *, verify: bool = True
) -> Wheel:
    """A wheel that was saved in a directory."""
    return _opened(path, *read_save(path, save, verify=verify), aggregates)


def empty_wheel(
    facts: Mapping[str, Any], aggregates: Mapping[str, Aggregate], first: int, compress: int
) -> Wheel:
    """A wheel as others describe themselves, which begins with a slot."""
    given, domain, rings, plan = _kind_of(facts, aggregates)
    if not_numbers(plan):
        ahead, threshold = facts["write ahead"], facts["one ring below"]
        return object_wheel(plan, rings, first, domain, ahead, threshold, given)
    store = RingStore(
        plan.layout, rings, first, power_of_two(facts["write ahead"]), prefix=facts["prefix"],
        threshold=facts["one ring below"], compress=compress,
    )  # fmt: skip
    return Wheel(plan, store, domain, facts["write ahead"], given)


class WheelStore(WheelQueries):
    """A wheel in buckets of keys, as Spark builds it: `tm.spark.build_wheel`.

    It is as it was when it was opened, whatever is appended since.
    """

    _store: Buckets

    def __init__(
        self, path: Path, facts: Mapping[str, Any], aggregates: Mapping[str, Aggregate], *, verify: bool
    ) -> None:  # fmt: skip
        _, domain, _, plan = _kind_of(facts, aggregates)
        self.path, self.description, self.given = path.resolve(), facts, dict(aggregates)
        self._wheels = [
            open_bucket(path, facts, aggregates, bucket, verify=verify)
            for bucket in facts[BUCKETS]["saves"]
        ] or [empty_wheel(facts, aggregates, facts[BUCKETS]["until"], 0)]  # fmt: skip
        nowhere = np.full(1, -1)  # keys are found below
        super().__init__(plan, Buckets([w._store for w in self._wheels], nowhere, nowhere), domain)
        self._store = Buckets([w._store for w in self._wheels], *self._owners())

    def _owners(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The bucket of each key there is, and its number in it."""
        if not self._keyed:
            return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        found = []
        for wheel in self._wheels:
            own = wheel._store.present
            found.append((self._keys.encode(wheel._keys.decode(own)), own))
        owners = np.full(self._keys.count, -1, dtype=np.int64)
        numbers = owners.copy()
        for bucket, (keys, own) in enumerate(found):
            owners[keys], numbers[keys] = bucket, own
        return owners, numbers

    def wheel(self) -> Wheel:
        """All of it as one wheel in memory, which can go on."""
        wheels = [w._copy() for w in self._wheels]
        while len(wheels) > 1:  # two by two: each cell is copied a few times, not once for each bucket
            for one, other in zip(wheels[::2], wheels[1::2]):
                one.merge(other)
            wheels = wheels[::2]
        [whole] = wheels
        whole._inserted, whole._left_out = self.description["rows"], dict(self.description["left out"])
        return whole

    def stats(self) -> dict[str, Any]:
        """Slots and bytes by ring, and how many rows came or were left out."""
        return {
            **super().stats(), "keys": len(self._store.present), "buckets": len(self._wheels),
            "rows": self.description["rows"], "left out": dict(self.description["left out"]),
        }  # fmt: skip


def bucket_path(path: Path, bucket: int | str) -> Path:
    return path / f"bucket-{int(bucket):05}"


def open_bucket(
    path: Path, facts: Mapping[str, Any], aggregates: Mapping[str, Aggregate], bucket: int | str, *,
    verify: bool,
) -> Wheel:  # fmt: skip
    """One of the wheels of a store, at the watermark of all: those without new rows were not written."""
    number = facts[BUCKETS]["saves"][str(bucket)]
    wheel = open_save(bucket_path(path, bucket), aggregates, number, verify=verify)
    if wheel._store.now < facts[BUCKETS]["until"]:
        wheel.advance_to(facts[BUCKETS]["until"] * wheel._grain)
    return wheel


def _opened(
    path: Path, tables: Mapping[str, pa.Table], facts: Mapping[str, Any],
    aggregates: Mapping[str, Aggregate],
) -> Wheel:  # fmt: skip
    given, domain, rings, plan = _kind_of(facts, aggregates)
    ahead = facts["write ahead"]
    if not_numbers(plan):
        held = object_wheel(plan, rings, 0, domain, ahead, facts["one ring below"], given)
        held._store.restore(tables)
        wheel: Wheel = held
    else:
        wheel = Wheel(plan, _opened_store(path, tables, facts, rings, plan), domain, ahead, given)
    if wheel._keyed:
        wheel._keys.restore([tables["keys"][k].combine_chunks() for k in plan.group_keys])
    for rows in tables["early"].to_batches():
        wheel._early.add(rows)
    for rows in tables["late"].to_batches():
        wheel._keep_late(rows)
    wheel._name, wheel._merged = facts["name"], dict(facts["merged"])
    wheel._inserted, wheel._left_out = facts["rows"], dict(facts["left out"])
    wheel._line, wheel._opened = facts["line"], wheel._seen
    return wheel


def _opened_store(
    path: Path, tables: Mapping[str, pa.Table], facts: Mapping[str, Any], rings: tuple[Ring, ...],
    plan: WindowAggregate,
) -> RingStore:  # fmt: skip
    ahead = power_of_two(facts["write ahead"])
    slots = Slots(plan.layout)
    rest = {
        "head": column(tables["head"], "head"),
        "totals": _from_records(tables["totals"], slots.open_type, slots.carries),
        "ahead": _from_records(tables["open"], slots.open_type, slots.carries),
    }
    cells = {n: column(tables["cells"], n) for n in tables["cells"].column_names}
    return unpacked(
        plan.layout, rings, ahead, cells, rest, prefix=facts["prefix"],
        threshold=facts["one ring below"], cold=_cold_of(facts, tables, path),
    )  # fmt: skip


def _aggregates_of(
    records: Mapping[str, Any], given: Mapping[str, Aggregate]
) -> dict[str, Aggregate]:
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


def _records(records: npt.NDArray[Any]) -> pa.Table:
    return pa.table({n: np.ascontiguousarray(records[n]) for n in records.dtype.names or ()})


def _from_records(table: pa.Table, kind: Any, carries: Collection[str]) -> npt.NDArray[Any]:
    found = np.zeros(table.num_rows, dtype=kind)
    for name in kind.names:
        if name in carries and name not in table.column_names:
            continue  # a wheel from before there were any: its sums fit
        found[name] = np.asarray(table[name])
    return found
