"""Wheels on disk: a directory of Arrow files and a manifest, written by rename, opened by memory map.

Every save has files of its own and a manifest `manifest-<save>.json`, which is written last: the newest
counts. (`manifest.json` is a copy of it, for people.) A save that does not get that far changes nothing;
the one before it is kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.errors import UserError

FORMAT = 1
MANIFEST = "manifest.json"
LOCK = "save.lock"
"""Who has it may number a save, and remove old ones."""
KEPT = 2
"""Saves that stay on disk."""
_UMASK = os.umask(0o022)
os.umask(_UMASK)  # it can only be read by being set
ABANDONED = 24 * 3600.0
"""Seconds after which a file of no save is one of a save that was never finished."""


class FilesGone(UserError):
    """Files of saves before, on which this one builds, are not there any more."""


class Fields(dict[str, Any]):
    """What a file has, by name. What it lacks is an error that says so when it is asked for."""

    def __init__(self, found: Mapping[str, Any], file: Path, hint: str = "") -> None:
        super().__init__(found)
        self._file, self._hint = file, hint

    def __missing__(self, name: str) -> Any:
        raise UserError(
            "open wheel", expected=f"{name!r} in {self._file}", got=f"only {list(self)}", hint=self._hint
        )


def read_json(file: Path, hint: str = "") -> Any:
    """What a file of JSON says, with fields that are asked for by name."""
    return json.loads(file.read_text(), object_hook=lambda found: Fields(found, file, hint))


@dataclass(frozen=True)
class Saved:
    """A save that is complete: its number, and what its manifest says of each file."""

    number: int
    files: dict[str, dict[str, Any]]


def write_save(
    path: Path, files: Mapping[str, pa.Table | dict[str, Any]], meta: Mapping[str, Any], *,
    after: int | None = None, forget: bool = True,
) -> Saved:  # fmt: skip
    """Write tables and what else is to be known as a new save.

    In place of a table there may be what `Saved.files` said of a file that is in the directory already.
    One that goes on from the save `after` is refused if there is a newer one by then. Old saves are
    removed, unless someone else does so (`forget_before`).
    """
    have_directory(path, step="save wheel")
    # Two writers at once never write the same file.
    own = f"{max((*saves_in(path), 0)) + 1:06}-{uuid.uuid4().hex[:8]}"
    described = {}
    for name, table in files.items():
        if isinstance(table, dict):
            described[name] = table
            continue
        file = f"{name}-{own}.arrow"
        with _renamed(path / file) as temporary:
            sink = pa.OSFile(str(temporary), "wb")
            with sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table.combine_chunks())
            described[name] = {"file": file, **_measured(temporary)}
    with (path / LOCK).open("w") as lock:  # given back when it is closed
        fcntl.flock(lock, fcntl.LOCK_EX)
        number = _write_manifest(path, {"format": FORMAT, "files": described, **meta}, after)
        if forget:
            _forget(path, number - KEPT + 1)
    return Saved(number, described)


def have_directory(path: Path, *, step: str) -> None:
    """Make a directory, unless there is one."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as taken:
        raise UserError(
            step, expected=f"a directory at {path}, or nothing yet", got="a file there, or above it",
            hint="name a directory: a wheel is several files",
        ) from taken  # fmt: skip


def forget_before(path: Path, save: int) -> None:
    """Remove the saves before one."""
    with (path / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _forget(path, save)


def saves_in(path: Path) -> list[int]:
    """The numbers of the saves there are."""
    return sorted(int(f.stem.split("-")[1]) for f in path.glob("manifest-*.json"))


def _write_manifest(path: Path, manifest: dict[str, Any], after: int | None) -> int:
    """Under the next number, then as the newest."""
    newest = max((*saves_in(path), 0))
    if after is not None and newest != after:
        raise UserError(
            "save wheel", expected=f"save {after} to be the newest in {path}",
            got=f"save {newest}, by another writer", hint="do it again, on what is there now",
        )  # fmt: skip
    gone = [f["file"] for f in manifest["files"].values() if not (path / f["file"]).exists()]
    if gone:
        raise FilesGone("save wheel", expected=f"{path / gone[0]}, saved before", got="no such file")
    text = json.dumps({"save": newest + 1, **manifest}, indent=1)
    for name in (f"manifest-{newest + 1:06}.json", MANIFEST):
        with _renamed(path / name) as temporary:
            temporary.write_text(text)
    return newest + 1


def read_save(
    path: Path, save: int | None = None, *, verify: bool = True
) -> tuple[dict[str, pa.Table], dict[str, Any]]:
    """The tables and the rest of a save, the newest unless another is named. Nothing is loaded yet."""
    numbers = saves_in(path)
    if not numbers:
        raise UserError("open wheel", expected=f"a wheel in {path}", got="no manifest")
    number = numbers[-1] if save is None else save
    file = _manifest(path, number)
    if not file.exists():
        raise UserError(
            "open wheel", expected=f"one of the saves {numbers} in {path}", got=f"save {save}",
            hint="older ones are removed when newer ones are made",
        )  # fmt: skip
    before = _before(path, number)
    try:
        manifest = read_json(file, before)
        described, version = dict(manifest["files"]), int(manifest["format"])
    except (ValueError, TypeError) as torn:
        raise _corrupt(file, "not a manifest", before) from torn
    if version != FORMAT:
        raise UserError(
            "open wheel", expected=f"format {FORMAT} in {file}", got=str(version),
            hint="open it with the version of Tidemill that wrote it",
        )  # fmt: skip
    tables = Fields({}, file, before)
    for name, facts in described.items():
        where = path / str(facts["file"])
        if not where.exists():
            raise _corrupt(where, "missing", before)
        if where.stat().st_size != facts["bytes"]:
            raise _corrupt(where, f"{where.stat().st_size} bytes, not {facts['bytes']}", before)
        if verify and _measured(where)["sha256"] != facts["sha256"]:
            raise _corrupt(where, "its checksum differs", before)
        try:
            tables[name] = pa.ipc.open_file(pa.memory_map(str(where))).read_all()
        except (pa.ArrowInvalid, OSError) as torn:
            raise _corrupt(where, f"not an Arrow file: {torn}", before) from torn
    return tables, manifest


def column(table: pa.Table, name: str) -> npt.NDArray[Any]:
    """A column of numbers where it lies in the file; bools are unpacked."""
    chunks = table[name].chunks
    if not chunks:
        return np.empty(0, dtype=table.schema.field(name).type.to_pandas_dtype())
    assert len(chunks) == 1
    found: npt.NDArray[Any] = chunks[0].to_numpy(zero_copy_only=not pa.types.is_boolean(chunks[0].type))
    return found


def _before(path: Path, number: int) -> str:
    """What to do where a save cannot be read."""
    others = [s for s in saves_in(path) if s < number]
    return f"open_wheel(path, save={max(others)}) is the save before" if others else ""


def _corrupt(file: Path, why: str, hint: str) -> UserError:
    return UserError("open wheel", expected=f"{file} as it was written", got=why, hint=hint)


def _manifest(path: Path, number: int) -> Path:
    return path / f"manifest-{number:06}.json"


def _forget(path: Path, first: int) -> None:
    """Remove the saves before one, and the files of which no save is made any more.

    Files that no manifest names may belong to a save that is being written; they stay for a day.
    """
    named = {number: _files_of(path, number) for number in saves_in(path)}
    used = {file for number, files in named.items() if number >= first for file in files}
    for number, files in named.items():
        if number < first:
            for file in files - used:
                (path / file).unlink(missing_ok=True)
            _manifest(path, number).unlink(missing_ok=True)
    used |= {file for files in named.values() for file in files}
    for pattern in ("*.arrow", ".*.arrow.*", ".*.json.*"):
        for left in path.glob(pattern):
            if left.name not in used and _is_abandoned(left):
                left.unlink(missing_ok=True)


def _is_abandoned(file: Path) -> bool:
    try:
        return time.time() - file.stat().st_mtime > ABANDONED
    except FileNotFoundError:  # it has got its name meanwhile: who writes it does not wait
        return False


def _files_of(path: Path, number: int) -> set[str]:
    """The files of a save; none if its manifest is torn."""
    try:
        manifest = json.loads(_manifest(path, number).read_text())
        return {facts["file"] for facts in manifest["files"].values()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return set()


@contextlib.contextmanager
def _renamed(path: Path) -> Any:
    """A file to write, which gets its name when it is complete and on disk."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~_UMASK)  # for whoever may read what else this user writes
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
