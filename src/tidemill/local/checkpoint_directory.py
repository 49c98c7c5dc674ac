"""A directory of checkpoints, in which each writes only what changed since the one before.

A checkpoint is a manifest, which names *segments*: a file with the whole state and files with changes after
it (`changes`), in their order. Checkpoints share segments. Every file appears by rename and is never changed,
the manifest last, so a checkpoint is whole or not there.

The manifest has the length of each segment and the checksum of its *contents page*, at its end, which has
the length and the checksum of each table.

The state is written whole again when the changes since then have more than a share of its bytes
(`MOST_CHANGES`), after `MOST_SEGMENTS` files with changes, and whenever the newest checkpoint is not the one
that this query wrote or restored.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from tidemill.core.checksums import CHECKSUM, Digesting, checksum
from tidemill.core.errors import UserError
from tidemill.core.files import (
    appearing,
    becomes,
    have_directory,
    is_plain,
    lock,
    open_plain,
    our_errors,
    read_plain,
    require_own_directory,
)
from tidemill.local.changes import becomes as table_of
from tidemill.local.changes import folded
from tidemill.local.checkpoint import Checkpoint, require_format
from tidemill.local.operator import Snapshot
from tidemill.local.snapshot import read_table, stream_bytes, write_table
from tidemill.plan.differences import differences

FORMAT = 1
KEEP = 3
"""How many checkpoints stay, unless one says otherwise."""
MOST_CHANGES = 0.5
"""The state is written whole again when changes have more than this share of its bytes."""
MOST_SEGMENTS = 64
LOCK = "writer.lock"
_NUMBER = "(?!000000)[0-9]{6}|[1-9][0-9]{6,8}"
MANIFEST = re.compile(rf"checkpoint-({_NUMBER})\.json")
SEGMENT = re.compile(rf"segment-(?:{_NUMBER})-[0-9a-f]{{8}}\.arrow")
_WRITE, _READ = "checkpoint", "restore"


@dataclass(frozen=True)
class Segment:
    """A file of tables, as a manifest describes it."""

    file: str
    bytes: int
    page: int
    """The length of the contents page at the end of the file."""
    sha256: str
    """The checksum of the contents page."""


@dataclass(frozen=True)
class Manifest:
    """A checkpoint of a directory."""

    number: int
    plan: str
    about: dict[str, Any]
    names: list[str]
    """The tables of the state."""
    segments: list[Segment]


@dataclass(frozen=True)
class Found:
    """A checkpoint that was read, and the newer ones that are damaged."""

    path: Path
    manifest: Manifest
    damaged: frozenset[int]


class Damaged(Exception):
    """Something is missing, or not what a manifest says."""


def is_directory(path: str | os.PathLike[str], keep: int | None, *, step: str) -> bool:
    """Return whether a path is a directory of checkpoints, not a file."""
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise UserError(step, expected="a path of a file or directory, as text or a Path", got=repr(path))
    if keep is not None and (not isinstance(keep, int) or isinstance(keep, bool) or keep < 1):
        raise UserError(_WRITE, expected="keep= a number of checkpoints, at least 1", got=f"{keep!r:.80}")
    return keep is not None or os.fspath(path).endswith(os.sep) or os.path.isdir(path)


def numbers_in(path: Path, step: str = _READ) -> list[int]:
    """Return the numbers of the checkpoints in a directory, the newest first."""
    with our_errors(step, path):
        found = [MANIFEST.fullmatch(name) for name in os.listdir(path)]
    return sorted((int(match[1]) for match in found if match), reverse=True)


# --- reading ----------------------------------------------------------------------------------------


def read_newest(path: Path) -> tuple[Found, Checkpoint]:
    """Read the newest checkpoint that is whole. There is a warning for each newer one that is damaged.

    A writer may remove files meanwhile: then there are newer ones, and those are read.
    """
    numbers = numbers_in(path)
    damaged: dict[int, str] = {}
    while left := [number for number in numbers if number not in damaged]:
        try:
            manifest = read_manifest(path, left[0])
            state = folded([_read_segment(path, s) for s in manifest.segments], manifest.names)
        except Damaged as why:
            damaged[left[0]] = str(why)
            now = numbers_in(path)
            if now and now[0] > numbers[0]:
                numbers, damaged = now, {}
            continue
        for number, reason in damaged.items():
            warnings.warn(
                f"checkpoint {number} in {path} is damaged ({reason}): continuing from checkpoint {left[0]}",
                RuntimeWarning, stacklevel=4,
            )  # fmt: skip
        return Found(path, manifest, frozenset(damaged)), Checkpoint.of(manifest.about, state)
    said = "; ".join(f"{number}: {reason}" for number, reason in damaged.items())
    raise UserError(
        _READ, expected=f"a whole checkpoint in {path}", got=f"damaged ones: {said:.500}" if said else "none"
    )


def read_manifest(path: Path, number: int) -> Manifest:
    """Read a manifest and check it."""
    name = _manifest_name(number)
    try:
        page = json.loads(read_plain(path / name, step=_READ))
        right = checksum(page)
    except FileNotFoundError:
        raise Damaged(f"{name} is missing") from None
    except (ValueError, AttributeError, RecursionError, MemoryError) as torn:
        raise Damaged(f"{name} is no JSON: {torn}") from torn
    if page.get(CHECKSUM) != right:
        raise Damaged(f"the checksum of {name} differs")
    require_format(page, FORMAT)
    try:
        segments = [Segment(**segment) for segment in page["segments"]]
        found = Manifest(page["number"], page["plan"], page["about"], page["names"], segments)
    except (KeyError, TypeError) as unknown:
        raise Damaged(f"{name} is incomplete: {unknown}") from unknown
    if found.number != number or not segments:
        raise Damaged(f"{name} is the manifest of another checkpoint")
    for segment in segments:
        if not isinstance(segment.file, str) or not SEGMENT.fullmatch(segment.file):
            raise Damaged(f"{name} names a file {segment.file!r:.80}")
    return found


def _read_segment(path: Path, segment: Segment) -> Snapshot:
    """Read the tables of a segment, and compare all of it with the manifest."""
    try:
        data = memoryview(read_plain(path / segment.file, step=_READ))
    except FileNotFoundError:
        raise Damaged(f"{segment.file} is missing") from None
    except UserError as special:  # a link, or a directory
        raise Damaged(str(special)) from special
    if len(data) != segment.bytes:
        raise Damaged(f"{segment.file} has {len(data)} bytes, not {segment.bytes}")
    page = data[max(0, len(data) - segment.page) :]
    if hashlib.sha256(page).hexdigest() != segment.sha256:
        raise Damaged(f"the checksum of {segment.file} differs")
    found: Snapshot = {}
    start = 0
    for name, length, digest in json.loads(bytes(page)):
        content = data[start : start + length]
        start += length
        if hashlib.sha256(content).hexdigest() != digest:
            raise Damaged(f"the checksum of {name} in {segment.file} differs")
        found[name] = read_table(pa.py_buffer(content))
    return found


# --- writing ----------------------------------------------------------------------------------------


class Writer:
    """The one that writes checkpoints to a directory. No other one can, until it is closed."""

    def __init__(self, path: Path, plan: str, restored: Found | None = None) -> None:
        """`restored` is what the query was restored from, if it was."""
        have_directory(path, step=_WRITE)
        require_own_directory(path, step=_WRITE)
        self.path, self._plan = path, plan
        with our_errors(_WRITE, path / LOCK):
            handle = open_plain(path / LOCK, os.O_RDWR | os.O_CREAT, step=_WRITE)
            self.close = weakref.finalize(self, os.close, handle)
            if not lock(handle):
                self.close()
                raise UserError(
                    _WRITE, expected=f"one live query that writes checkpoints to {path}", got="another one",
                    hint="close it, or name another directory",
                )  # fmt: skip
        self._damaged: frozenset[int] = frozenset()
        self._last: Manifest | None = None
        if restored is not None and restored.path == path:
            self._last, self._damaged = restored.manifest, restored.damaged
        self._digests: dict[str, str] = {}
        """The checksum of each table that is as it was written, whole, in the segments so far."""
        try:
            self._require_own()
        except BaseException:
            self.close()
            raise

    def _require_own(self) -> None:
        """Raise an error if the newest checkpoint is of another query."""
        newest = next(self._whole_ones(), None)
        if newest is not None and newest.plan != self._plan:
            raise UserError(
                _WRITE, expected=f"checkpoints of this query in {self.path}",
                got=f"those of a plan in which\n{differences(newest.plan, self._plan)}",
                hint="name another directory",
            )  # fmt: skip

    @property
    def writes_whole(self) -> bool:
        """Whether the next checkpoint must have the whole state, not only what changed."""
        last = self._last
        if last is None or max(numbers_in(self.path, _WRITE), default=0) != last.number:
            return True
        base, *more = last.segments
        many = len(more) >= MOST_SEGMENTS or sum(s.bytes for s in more) > MOST_CHANGES * base.bytes
        return many or not all(self._there(segment) for segment in last.segments)

    def write(self, saved: Checkpoint, *, whole: bool, keep: int = KEEP) -> int:
        """Write a checkpoint, of the whole state or of what changed; return how many bytes were written.

        Then remove what the `keep` newest checkpoints do not need.
        """
        number = max(numbers_in(self.path, _WRITE), default=0) + 1
        tables = saved.tables()
        names = list(dict.fromkeys(table_of(name) for name in tables))
        segment, digests = self._write_segment(number, tables, {} if whole else self._digests)
        before = [] if whole or self._last is None else self._last.segments
        manifest = Manifest(number, self._plan, saved.about, names, [*before, segment])
        try:
            size = self._write_manifest(manifest)
        except BaseException:
            if not is_plain(self.path / _manifest_name(number)):
                (self.path / segment.file).unlink(missing_ok=True)
            raise
        self._last = manifest
        same = {} if whole else {n: digest for n, digest in self._digests.items() if n in tables}
        self._digests = {**same, **digests}  # not of a table to which rows were added
        self._prune(keep)
        return segment.bytes + size

    def _write_segment(
        self, number: int, tables: Snapshot, known: dict[str, str]
    ) -> tuple[Segment, dict[str, str]]:
        """Write all tables, except those whose checksum is known; return the checksums of whole tables."""
        name = f"segment-{number:06}-{secrets.token_hex(4)}.arrow"
        assert SEGMENT.fullmatch(name)
        contents: list[tuple[str, int, str]] = []
        with appearing(self.path / name, step=_WRITE) as file:
            for title, table in tables.items():
                if title in known:
                    data = stream_bytes(table)
                    digest = hashlib.sha256(data).hexdigest()
                    if digest == known[title]:
                        continue
                    file.write(data)
                    contents.append((title, len(data), digest))
                else:
                    contents.append((title, *_write_table(table, file)))
            page = json.dumps(contents).encode()
            file.write(page)
        digests = {title: digest for title, _, digest in contents if title == table_of(title)}
        size = sum(length for _, length, _ in contents) + len(page)
        return Segment(name, size, len(page), hashlib.sha256(page).hexdigest()), digests

    def _write_manifest(self, manifest: Manifest) -> int:
        page = {
            "format": FORMAT, "number": manifest.number, "plan": manifest.plan, "about": manifest.about,
            "names": manifest.names, "segments": [vars(segment) for segment in manifest.segments],
        }  # fmt: skip
        text = json.dumps({CHECKSUM: checksum(page), **page}).encode()
        with appearing(self.path / _manifest_name(manifest.number), step=_WRITE) as file:
            file.write(text)
        return len(text)

    def _there(self, segment: Segment) -> bool:
        """Whether the file of a segment is there, with its length."""
        file = self.path / segment.file
        return is_plain(file) and file.stat().st_size == segment.bytes

    def _whole_ones(self) -> Iterator[Manifest]:
        """Yield the checkpoints that seem to be whole, the newest first; their checksums are not compared."""
        for number in numbers_in(self.path, _WRITE):
            if number in self._damaged:
                continue
            try:
                manifest = read_manifest(self.path, number)
            except Damaged:
                continue
            if all(self._there(segment) for segment in manifest.segments):
                yield manifest

    def _prune(self, keep: int) -> None:
        """Remove all but the newest whole checkpoints, and what killed writers left; nobody else writes."""
        try:
            with our_errors(_WRITE, self.path):
                kept = [manifest for manifest, _ in zip(self._whole_ones(), range(keep))]
                used = {_manifest_name(manifest.number) for manifest in kept}
                used |= {segment.file for manifest in kept for segment in manifest.segments}
                # Manifests first: one that is there has all its segments, unless it is damaged.
                for name in sorted(os.listdir(self.path), key=lambda name: MANIFEST.fullmatch(name) is None):
                    ours = MANIFEST.fullmatch(becomes(name)) or SEGMENT.fullmatch(becomes(name))
                    if ours and name not in used and is_plain(self.path / name):
                        (self.path / name).unlink(missing_ok=True)
        except UserError as failed:  # the checkpoint itself is there; the next one tries again
            warnings.warn(
                f"files that are not needed stay in {self.path}: {failed}", RuntimeWarning, stacklevel=4
            )


def _manifest_name(number: int) -> str:
    return f"checkpoint-{number:06}.json"


def _write_table(table: pa.Table, file: BinaryIO) -> tuple[int, str]:
    """Write a table as an Arrow stream; return its length and checksum."""
    sink = Digesting(file)
    with pa.PythonFile(sink, mode="w") as out:
        write_table(table, out)
    return sink.size, sink.digest.hexdigest()
