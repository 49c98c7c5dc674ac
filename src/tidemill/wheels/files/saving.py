"""Save the state of a wheel in a directory; see `files.format` for how files are written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.aggregates.json import to_record
from tidemill.core.files import is_plain, resolved
from tidemill.expr.json import type_to_json
from tidemill.wheels.files.cell_tables import cell_tables
from tidemill.wheels.files.format import FilesGone, write_save
from tidemill.wheels.files.opening import BLOCK_FILES, WINDOW
from tidemill.wheels.files.packed import packed
from tidemill.wheels.files.sparse_tables import sparse_tables
from tidemill.wheels.memory.sparse_store import SparseStore
from tidemill.wheels.memory.store import RingStore
from tidemill.wheels.memory.window_state import WindowState
from tidemill.wheels.objects.store import ObjectStore
from tidemill.wheels.state import WheelState
from tidemill.windows.spec import Session, Sliding, Window

JOB = "job"
"""The manifest field with the id of the build or append that a save is part of."""


def save(state: WheelState, path: str | os.PathLike[str], *, job: str = "") -> int:
    """Save a wheel; returns the number of the save. Old saves are removed, unless this one is part of a
    `job`, which removes them itself."""
    state.require_verified()
    directory = resolved(path, step="wheel save")
    keys = state.keys.decode(np.arange(state.store.keys)) if state.keyed else []
    windows = state.windows.snapshot()
    files = {
        **_store_files(state.store, directory),
        "keys": pa.table(dict(zip(state.plan.group_keys, keys))),
        "early": pa.Table.from_batches(state.early.batches(), schema=state.arrow),
        "late": pa.Table.from_batches(state.late, schema=state.arrow),
        **{
            f"{WINDOW}{number}": _records(np.concatenate(list(held.arrays.values())).ravel())
            for number, held in enumerate(windows.values())
        },
    }
    facts = described(state)  # after `_store_files`, which seals blocks
    if windows:
        specs = state.windows.specs
        facts["windows"] = [_window_facts(label, specs[label], held) for label, held in windows.items()]
    if job:
        facts[JOB] = job
    try:
        saved = write_save(directory, files, facts, forget=not job)
    except FilesGone:  # another process has saved there meanwhile, and removed ours
        return save(state, path, job=job)
    if state.store.blocks is not None:
        for number, buffer in enumerate(state.store.blocks.buffers):
            buffer.file = {**saved.files[f"{BLOCK_FILES}{number}"], "in": str(directory)}
    return saved.number


def _window_facts(label: str, spec: Window, held: WindowState) -> dict[str, Any]:
    """The manifest entry of a window; lengths and instants are in ticks."""
    if isinstance(spec, Session):
        return {"label": label, "gap": spec.gap.ticks, "numbers": held.numbers}
    assert isinstance(spec, Sliding)
    return {
        "label": label, "range": spec.length, "every": spec.slide, "origin": spec.origin,
        "start": spec.start, "numbers": held.numbers,
    }  # fmt: skip


def _store_files(store: RingStore, directory: Path) -> dict[str, Any]:
    if isinstance(store, ObjectStore):
        return cell_tables(store)
    if isinstance(store, SparseStore):
        return sparse_tables(store)
    blocks = _compressed(store, directory)
    cells, rest = packed(store)
    return {
        "cells": pa.table({n: pa.array(x) for n, x in cells.items()}),
        "head": pa.table({"head": rest["head"]}),
        "totals": _records(rest["totals"]),
        "open": _records(rest["ahead"]),
        **blocks,
    }


def _compressed(store: RingStore, directory: Path) -> dict[str, Any]:
    """The directory of blocks as a table, and each buffer: a table, or the entry of its existing file."""
    for buffer in store.blocks.buffers if store.blocks is not None else ():
        known = buffer.file  # later saves may have removed the file
        if known and (known["in"] != str(directory) or not is_plain(directory / known["file"])):
            buffer.file = None
    blocks = store.seal()
    if blocks is None:
        return {}
    files: dict[str, Any] = {"blocks": pa.table({"numbers": blocks.directory.ravel()})}
    for number, buffer in enumerate(blocks.buffers):
        known = buffer.file
        files[f"{BLOCK_FILES}{number}"] = (
            pa.table({"words": buffer.words}) if known is None
            else {k: v for k, v in known.items() if k != "in"}
        )  # fmt: skip
    return files


def described(state: WheelState) -> dict[str, Any]:
    """The description of a wheel, without its rows."""
    spec, blocks, lineage = state.spec, state.store.blocks, state.lineage
    line = state.id[len(lineage.name) :].split("@")[0]
    aggregates = {n: to_record(a) for n, a in spec.given.items()}
    return {
        "aggregates": {n: r or str(spec.given[n]) for n, r in aggregates.items()},
        "schema": {n: type_to_json(t) for n, t in state.schema}, "time": state.time,
        "keys": list(state.plan.group_keys), "domain": spec.domain.name,
        "rings": [[r.ticks, r.slots, r.shown] for r in spec.rings],
        "write ahead": spec.write_ahead, "prefix": spec.prefix, "one ring below": spec.one_ring_below,
        "name": lineage.name, "merged": lineage.merged, "line": line,
        "rows": state.inserted, "left out": state.left_out, "sparse": isinstance(state.store, SparseStore),
        "notes": state.notes,
        "compressed": None if blocks is None else {
            "slots": blocks.slots, "columns": blocks.columns, "pieces": len(blocks.buffers),
            "regions": [[r.begin, r.room, r.first, r.count] for r in blocks.regions],
        },
    }  # fmt: skip


def _records(records: npt.NDArray[Any]) -> pa.Table:
    return pa.table({n: np.ascontiguousarray(records[n]) for n in records.dtype.names or ()})
