"""The disk format of wheels: a directory of Arrow files and manifests, written by rename, memory-mapped.

Every save has its own files and a manifest `manifest-<save>.json`, which is written last: the newest one is
current. (`manifest.json` is a copy of it, for people.) A save that fails before that changes nothing; the
previous save is kept. `claims` handles files that no manifest names.

Files are untrusted: a manifest has a checksum, names of files must be plain names in the directory itself,
and data files must be plain files with the expected columns.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemill.core.checksums import CHECKSUM, Digesting, checksum
from tidemill.core.errors import UserError
from tidemill.core.files import appearing, have_directory, is_plain, our_errors, read_plain
from tidemill.wheels.files.claims import (
    DATA,
    MANIFEST,
    claimed,
    locked,
    names_in,
    remove_leftovers,
    require_number,
    tidying,
)
from tidemill.wheels.files.mapped import Mapped, as_it_must_be, corrupt, map_file

FORMAT, READABLE = 3, (2, 3)
"""The format that is written, and those that can be read: format 2 had no sparse wheels."""
NEWEST = "manifest.json"
KEPT = 2
"""The number of saves to keep on disk."""


class FilesGone(UserError):
    """Raised if files of earlier saves that this save refers to are gone."""


class Fields(dict[str, Any]):
    """The fields of a file by name. Reading a missing field raises a `UserError` that names it."""

    def __init__(self, found: Mapping[str, Any], file: Path, hint: str = "") -> None:
        super().__init__(found)
        self._file, self._hint = file, hint

    def __missing__(self, name: str) -> Any:
        raise UserError(
            "open wheel", expected=f"{name!r} in {self._file}", got=f"only {list(self)}", hint=self._hint
        )


def read_json(file: Path, hint: str = "", kind: str = "JSON") -> Any:
    """Read a JSON file; objects become `Fields`.

    Raises `FileNotFoundError`, as `read_plain` does.
    """
    text = read_plain(file, step="open wheel")
    try:
        return json.loads(text, object_hook=lambda found: Fields(found, file, hint))
    except (ValueError, RecursionError, MemoryError) as torn:  # ValueError: also invalid UTF-8
        raise corrupt(file, f"not {kind}: {torn or type(torn).__name__}", hint) from torn


# --- writing ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Saved:
    """A complete save: its number, and the manifest entry of each file."""

    number: int
    files: dict[str, dict[str, Any]]


def write_save(
    path: Path, files: Mapping[str, pa.Table | dict[str, Any]], meta: Mapping[str, Any], *,
    after: int | None = None, forget: bool = True,
) -> Saved:  # fmt: skip
    """Write tables and metadata as a new save.

    Instead of a table, an entry of `Saved.files` may be given for a file that is in the directory already.
    If `after` is given, it must still be the newest save. With `forget`, old saves are removed; otherwise the
    caller does it (`forget_saves`). A save that fails leaves no files.
    """
    have_directory(path, step="save wheel")
    with our_errors("save wheel", path), claimed(path, max((*saves_in(path), 0)) + 1) as claim:
        described = {}
        try:
            for name, table in files.items():
                described[name] = table if isinstance(table, dict) else _write(path, name, claim, table)
            with locked(path):
                number = _write_manifest(path, {"format": FORMAT, "files": described, **meta}, after)
        except BaseException:
            _take_back(path, claim)
            raise
    if forget:
        with tidying(path):
            forget_saves(path, lambda save: save > number - KEPT)
    return Saved(number, described)


def forget_saves(path: Path, counts: Callable[[int], bool]) -> None:
    """Remove the saves for which `counts` is false, and the leftovers of killed saves."""
    with our_errors("save wheel", path), locked(path):
        used: set[str] | None = set()
        for number in saves_in(path):
            if not counts(number):
                _manifest(path, number).unlink(missing_ok=True)
            elif used is not None:
                named = _files_of(path, number)
                used = None if named is None else used | named
        if not saves_in(path):
            (path / NEWEST).unlink(missing_ok=True)
        remove_leftovers(path, used)


def saves_in(path: Path) -> list[int]:
    """The numbers of the saves in a directory, sorted."""
    found = (MANIFEST.fullmatch(name) for name in names_in(path))
    return sorted(int(f[1]) for f in found if f and f[1])


def _write(path: Path, name: str, claim: str, table: pa.Table) -> dict[str, Any]:
    file = f"{name}-{claim}.arrow"
    assert DATA.fullmatch(file)
    with appearing(path / file, step="save wheel") as target:
        sink = Digesting(target)
        with pa.PythonFile(sink, mode="w") as out, pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table.combine_chunks())
    return {"file": file, "bytes": sink.size, "sha256": sink.digest.hexdigest()}


def _write_manifest(path: Path, manifest: dict[str, Any], after: int | None) -> int:
    """Write a manifest under the next number, then as `NEWEST`; returns the number."""
    newest = max((*saves_in(path), 0))
    if after is not None and newest != after:
        raise UserError(
            "save wheel", expected=f"save {after} to be the newest in {path}",
            got=f"save {newest}, by another writer", hint="repeat the append on the newest save",
        )  # fmt: skip
    require_number(path, newest + 1, "save wheel")
    gone = [f["file"] for f in manifest["files"].values() if not is_plain(path / f["file"])]
    if gone:
        raise FilesGone("save wheel", expected=f"{path / gone[0]}, saved before", got="no such file")
    whole = {"save": newest + 1, **manifest}
    text = json.dumps({CHECKSUM: checksum(whole), **whole}, indent=1).encode()
    with (
        appearing(path / NEWEST, step="save wheel") as copy,
        appearing(_manifest(path, newest + 1), step="save wheel") as file,
    ):  # both are written first; then the numbered manifest, which counts, is renamed first
        for each in (copy, file):
            each.write(text)
            each.flush()
    return newest + 1


def _take_back(path: Path, claim: str) -> None:
    """Remove the files of a failed save, unless a manifest names them already."""
    named = [_files_of(path, number) or set() for number in saves_in(path)]
    for name in names_in(path):
        data = DATA.fullmatch(name)
        if data and data[1] == claim and not any(name in files for files in named):
            (path / name).unlink(missing_ok=True)


def _manifest(path: Path, number: int) -> Path:
    return path / f"manifest-{number:06}.json"


def _files_of(path: Path, number: int) -> set[str] | None:
    """The files of a save; None if its manifest cannot be read."""
    try:
        manifest = read_json(_manifest(path, number))
        return {_file_name(facts["file"]) for facts in manifest["files"].values()}
    except (FileNotFoundError, UserError, AttributeError, TypeError):
        return None


# --- reading ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Save:
    """An open save: its manifest, and its files."""

    path: Path
    facts: Fields
    files: dict[str, Mapped]
    hint: str
    """The hint for errors: what to do if the save cannot be read."""

    def table(self, name: str, schema: pa.Schema) -> pa.Table:
        """See `Mapped.table`."""
        if name not in self.files:
            raise corrupt(_manifest(self.path, self.facts["save"]), f"no file of {name!r}", self.hint)
        return self.files[name].table(schema)

    @contextlib.contextmanager
    def understood(self) -> Iterator[None]:
        """Turn any error while the save is interpreted into a `UserError` that names it."""
        with as_it_must_be(self.path, self.hint):
            yield


def read_save(path: Path, save: int | None = None, *, verify: bool = True) -> Save:
    """Open a save, by default the newest. Files are memory-mapped, and read once to `verify` them."""
    with our_errors("open wheel", path):
        numbers = saves_in(path)
        if not numbers:
            raise UserError("open wheel", expected=f"a wheel in {path}", got="no manifest")
        number = numbers[-1] if save is None else save
        if number not in numbers:
            raise UserError(
                "open wheel", expected=f"one of the saves {numbers} in {path}", got=f"save {save}",
                hint="older saves are removed when newer ones are made",
            )  # fmt: skip
        others = [s for s in numbers if s < number]
        before = f"open_wheel(path, save={max(others)}) is the save before" if others else ""
        facts = manifest_of(path, number, before)
        files = {}
        with as_it_must_be(_manifest(path, number), before):
            for name, said in dict(facts["files"]).items():
                file = path / _file_name(said["file"])
                files[name] = map_file(file, said["sha256"], said["bytes"], before)
    for mapped in files.values() if verify else ():
        mapped.verify()
    return Save(path, facts, files, before)


def manifest_of(path: Path, number: int, before: str = "") -> Fields:
    """Read the manifest of a save and check it against its checksum."""
    file = _manifest(path, number)
    try:
        facts = read_json(file, before, "a manifest")
    except FileNotFoundError as gone:
        raise corrupt(file, "missing", before) from gone
    if not isinstance(facts, Fields) or not isinstance(facts["files"], dict):
        raise corrupt(file, "not a manifest", before)
    if facts["format"] not in READABLE:
        raise UserError(
            "open wheel", expected=f"format {' or '.join(map(str, READABLE))} in {file}",
            got=str(facts["format"]), hint="open it with the version of Tidemill that wrote it",
        )  # fmt: skip
    with as_it_must_be(file, before):
        right = checksum(facts)
    if facts[CHECKSUM] != right:
        raise corrupt(file, "its checksum differs", before)
    if facts["save"] != number:
        raise corrupt(file, f"it says that it is save {facts['save']!r}", before)
    return facts


def _file_name(said: Any) -> str:
    """Check a file name from a manifest: it must be a data file in the same directory."""
    if not isinstance(said, str) or not DATA.fullmatch(said):
        raise UserError(
            "open wheel", expected="files of the directory itself, such as cells-000001-0123abcd.arrow",
            got=repr(said),
        )  # fmt: skip
    return said
