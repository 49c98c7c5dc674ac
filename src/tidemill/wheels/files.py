"""Wheels on disk: a directory of Arrow files and a manifest, written by rename, opened by memory map.

Every save has files of its own and a manifest `manifest-<save>.json`; `manifest.json` is a copy of the
newest. A save that does not get that far changes nothing; the one before it is kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.errors import UserError

FORMAT = 1
MANIFEST = "manifest.json"
LOCK = "save.lock"
"""Saves of several processes wait for each other: they would take the same number."""
KEPT = 2
"""Saves that stay on disk."""


def write_save(path: Path, files: Mapping[str, pa.Table], meta: Mapping[str, Any]) -> int:
    """Write tables and what else is to be known as a new save; its number."""
    path.mkdir(parents=True, exist_ok=True)
    with (path / LOCK).open("w") as lock:  # given back when it is closed
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _write_next(path, files, meta)


def _write_next(path: Path, files: Mapping[str, pa.Table], meta: Mapping[str, Any]) -> int:
    number = max((*_saves(path), 0)) + 1
    described = {}
    for name, table in files.items():
        file = f"{name}-{number:06}.arrow"
        with _renamed(path / file) as temporary:
            sink = pa.OSFile(str(temporary), "wb")
            with sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table.combine_chunks())
            described[name] = {"file": file, **_measured(temporary)}
    manifest = {"format": FORMAT, "save": number, "files": described, **meta}
    for name in (f"manifest-{number:06}.json", MANIFEST):
        with _renamed(path / name) as temporary:
            temporary.write_text(json.dumps(manifest, indent=1))
    _forget(path, number)
    return number


def read_save(
    path: Path, save: int | None = None, *, verify: bool = True
) -> tuple[dict[str, pa.Table], dict[str, Any]]:
    """The tables and the rest of a save, the newest unless another is named. Nothing is loaded yet."""
    file = path / (MANIFEST if save is None else f"manifest-{save:06}.json")
    if not file.exists():
        raise UserError("open wheel", expected=f"a wheel in {path}", got=f"no file {file.name}")
    try:
        manifest = json.loads(file.read_text())
        described = dict(manifest["files"])
        version, number = int(manifest["format"]), int(manifest["save"])
    except (ValueError, KeyError, TypeError) as torn:
        raise _corrupt(path, file, "not a manifest", None) from torn
    if version != FORMAT:
        raise UserError(
            "open wheel", expected=f"format {FORMAT} in {file}", got=str(version),
            hint="open it with the version of Tidemill that wrote it",
        )  # fmt: skip
    tables = {}
    for name, facts in described.items():
        where = path / str(facts["file"])
        if not where.exists():
            raise _corrupt(path, where, "missing", number)
        if where.stat().st_size != facts["bytes"]:
            raise _corrupt(path, where, f"{where.stat().st_size} bytes, not {facts['bytes']}", number)
        if verify and _measured(where)["sha256"] != facts["sha256"]:
            raise _corrupt(path, where, "its checksum differs", number)
        tables[name] = pa.ipc.open_file(pa.memory_map(str(where))).read_all()
    return tables, manifest


def column(table: pa.Table, name: str) -> npt.NDArray[Any]:
    """A column of numbers where it lies in the file."""
    chunks = table[name].chunks
    if not chunks:
        return np.empty(0, dtype=table.schema.field(name).type.to_pandas_dtype())
    assert len(chunks) == 1
    found: npt.NDArray[Any] = chunks[0].to_numpy(zero_copy_only=True)
    return found


def _corrupt(path: Path, file: Path, why: str, save: int | None) -> UserError:
    others = [s for s in _saves(path) if save is None or s < save]
    hint = f"open_wheel(path, save={max(others)}) is the save before" if others else ""
    return UserError("open wheel", expected=f"{file} as it was written", got=why, hint=hint)


def _saves(path: Path) -> list[int]:
    return sorted(int(f.stem.split("-")[1]) for f in path.glob("manifest-*.json"))


def _forget(path: Path, newest: int) -> None:
    kept = [s for s in _saves(path) if s > newest - KEPT]
    for file in path.iterdir():
        number = file.stem.rpartition("-")[2]
        if number.isdigit() and int(number) not in kept:
            file.unlink()


@contextlib.contextmanager
def _renamed(path: Path) -> Any:
    """A file to write, which gets its name when it is complete and on disk."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _measured(path: Path) -> dict[str, Any]:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return {"bytes": path.stat().st_size, "sha256": digest.hexdigest()}
