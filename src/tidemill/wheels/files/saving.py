"""Wheels to and from directories of Arrow files; see `wheels.files` for how they are written."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.aggregates.algebra import Aggregate
from tidemill.aggregates.json import to_record
from tidemill.core.errors import UnsupportedError, UserError
from tidemill.core.files import is_plain, our_errors, require_own_directory, resolved
from tidemill.core.time import FARTHEST
from tidemill.expr.json import type_to_json
from tidemill.wheels.files.checks import (
    MOST_CELLS_BEHIND,
    a_text,
    an_int,
    by_text,
    require,
)
from tidemill.wheels.files.directory import (
    Fields,
    FilesGone,
    Save,
    read_save,
    write_save,
)
from tidemill.wheels.files.leftovers import LAST_SAVE
from tidemill.wheels.files.mapped import as_it_must_be
from tidemill.wheels.files.opening import COLD, store_rings, what_it_is, wheel_of
from tidemill.wheels.memory.buckets import Buckets
from tidemill.wheels.memory.packing import packed
from tidemill.wheels.memory.store import RingStore
from tidemill.wheels.objects.store import ObjectStore
from tidemill.wheels.objects.wheel import object_wheel
from tidemill.wheels.queries import WheelQueries
from tidemill.wheels.rings import Ring
from tidemill.wheels.sharing.reader import WheelReader
from tidemill.wheels.sharing.writer import Subscriber, is_shared
from tidemill.wheels.spec import MOST_AHEAD, kind_of, not_numbers, power_of_two
from tidemill.wheels.wheel import Wheel

MOST_BUCKETS = 10_000
BUCKETS = "buckets"
"""What the manifest of a wheel in buckets says of them."""
_STEP = 1 << 16
"""Cells that are closed at once when a bucket is behind its store."""
JOB = "job"
"""What the manifest of a save says of the build or append that it is part of."""


def save(wheel: Wheel, path: str | os.PathLike[str], *, job: str = "") -> int:
    """See `Wheel.save`. The number of the save; old ones are removed, unless it is part of a larger `job`,
    whose it is to do so."""
    if wheel._windows:
        raise UnsupportedError("wheel save", "windows that are open", instead="save without windows")
    wheel._require_verified()
    directory = resolved(path, step="wheel save")
    rows = np.arange(wheel._store.keys)
    keys = wheel._keys.decode(rows) if wheel._keyed else []
    schema = wheel._schema.to_arrow()
    files = {
        **_store_files(wheel._store, directory),
        "keys": pa.table(dict(zip(wheel._plan.group_keys, keys))),
        "early": pa.Table.from_batches(wheel._early.batches(), schema=schema),
        "late": wheel.late(),
    }
    facts = {**described(wheel), JOB: job} if job else described(wheel)  # as it is in files
    try:
        saved = write_save(directory, files, facts, forget=not job)
    except FilesGone:  # another process has saved there meanwhile, and removed ours
        return save(wheel, path, job=job)
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
        if known and (known["in"] != str(directory) or not is_plain(directory / known["file"])):
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


def described(wheel: Wheel) -> dict[str, Any]:
    """What a wheel is, without what is in it."""
    aggregates = {n: to_record(a) for n, a in wheel._given.items()}
    cold = wheel._store.cold
    return {
        "aggregates": {n: r or str(wheel._given[n]) for n, r in aggregates.items()},
        "schema": {n: type_to_json(t) for n, t in wheel._schema}, "time": wheel._time,
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
    files once, to compare checksums. Without it, a damaged file may give a wrong answer, and nothing worse;
    checksums are compared before such a wheel is saved again or merged. A shared one can only be asked; it
    always answers as of now. One that Spark built can only be asked, too; `wheel()` of it goes on. A user's
    own `aggregates` are given again: files hold no code.
    """
    where = Path(path)
    with our_errors("open wheel", where):
        if is_shared(where):
            source = Subscriber(where)
            with as_it_must_be(where, ""):
                _, domain, rings, plan = what_it_is(source.described, aggregates or {})
            return WheelReader(source, plan, rings, domain)
    opened = read_save(where, save, verify=verify)
    if BUCKETS in opened.facts:
        return WheelStore(opened, aggregates or {}, verify=verify)
    return wheel_of(opened, aggregates or {}, verify=verify)


def open_save(
    path: Path, aggregates: Mapping[str, Aggregate], save: int | None = None, *, verify: bool = True
) -> Wheel:
    """A wheel that was saved in a directory."""
    return wheel_of(read_save(path, save, verify=verify), aggregates, verify=verify)


def empty_wheel(
    facts: Mapping[str, Any], aggregates: Mapping[str, Aggregate], first: int, compress: int
) -> Wheel:
    """A wheel as others describe themselves, which begins with a slot."""
    given, domain, rings, plan = what_it_is(facts, aggregates)
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

    def __init__(self, opened: Save, aggregates: Mapping[str, Aggregate], *, verify: bool) -> None:
        facts, path = opened.facts, opened.path
        with opened.understood():
            _, domain, rings, plan = what_it_is(facts, aggregates)
            check_buckets(facts, rings)
        self.path, self.description, self.given = path.resolve(), facts, dict(aggregates)
        self.verify = verify
        """Whether buckets are compared with their checksums, here and by who opens them again."""
        self._wheels = [
            open_bucket(path, facts, aggregates, bucket, verify=verify)
            for bucket in facts[BUCKETS]["saves"]
        ] or [empty_wheel(facts, aggregates, facts[BUCKETS]["until"], 0)]  # fmt: skip
        kind = kind_of(plan)
        for wheel in self._wheels:
            alike = kind_of(wheel._plan) == kind and wheel._store.rings == rings
            require(alike and wheel._store.now == facts[BUCKETS]["until"], f"buckets alike in {path}", wheel)
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


def read_store(
    path: Path, aggregates: Mapping[str, Aggregate], save: int | None = None, *, step: str, hint: str
) -> Fields:
    """What the manifest of a store in buckets says."""
    opened = read_save(path, save)
    if BUCKETS not in opened.facts:
        raise UserError(
            step, expected=f"a wheel that tm.spark.build_wheel made in {path}", got="another one", hint=hint
        )
    with opened.understood():
        what_it_is(opened.facts, aggregates)
        check_buckets(opened.facts, store_rings(opened.facts))
    return opened.facts


def check_buckets(facts: Mapping[str, Any], rings: Sequence[Ring]) -> None:
    """Refuse what no store in buckets can say of them."""
    said = facts[BUCKETS]
    count = an_int(said["count"], "buckets", 1, MOST_BUCKETS)
    farthest = FARTHEST // rings[0].ticks + 1
    an_int(said["until"], "the watermark, in slots", -farthest, farthest)
    for bucket, number in by_text(said["saves"], "saves of buckets", int).items():
        known = bucket.isascii() and bucket.isdigit() and bucket == str(int(bucket)) and int(bucket) < count
        require(known, f"buckets from 0 to {count - 1}", bucket)
        an_int(number, "a save", 1, LAST_SAVE)
    an_int(facts["rows"], "rows", 0, 1 << 63)
    by_text(facts["left out"], "rows that were left out", int)
    a_text(facts["name"], "a name")
    slots = facts["compress"]
    require(isinstance(slots, bool) or type(slots) is int, "slots to a block, true or false", slots)
    an_int(int(slots), "slots to a block", 0, MOST_AHEAD)


def open_bucket(
    path: Path, facts: Mapping[str, Any], aggregates: Mapping[str, Aggregate], bucket: int | str, *,
    verify: bool,
) -> Wheel:  # fmt: skip
    """One of the wheels of a store, at the watermark of all: those without new rows were not written."""
    number, until = facts[BUCKETS]["saves"][str(bucket)], facts[BUCKETS]["until"]
    own = bucket_path(path, bucket)
    require_own_directory(own, step="open wheel")
    opened = read_save(own, number, verify=verify)
    wheel = wheel_of(opened, aggregates, verify=verify)
    with opened.understood():
        behind, keys = until - wheel._store.now, max(1, wheel._store.keys)
        near = 0 <= behind <= MOST_CELLS_BEHIND // keys
        require(near, f"a bucket of {keys} keys at most {MOST_CELLS_BEHIND // keys} slots behind", behind)
        if behind * keys > _STEP:
            wheel.require_memory(until)
        while wheel._store.now < until:  # in steps: Ctrl-C does not get into a kernel
            wheel.advance_to(min(until, wheel._store.now + max(1, _STEP // keys)) * wheel._grain)
    return wheel


def _records(records: npt.NDArray[Any]) -> pa.Table:
    return pa.table({n: np.ascontiguousarray(records[n]) for n in records.dtype.names or ()})


