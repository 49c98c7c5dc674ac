"""Share a wheel between one writer and readers in other processes, by files that all of them memory-map.

The writer's arrays are those of the newest *generation*, which has a file for each array; growing makes a new
generation. The root has its number. While slots close, the version in the head is odd, and a read that
overlaps is repeated: no reader sees a partial change.

Every file except the root has the id of its writer in its name. A writer that takes over a directory marks
the old root, which readers have mapped, and makes a new root: the files of two writers never mix. Only files
with such names are ever removed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import mmap
import os
import re
import secrets
import time
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.files import (
    appearing,
    becomes,
    have_directory,
    is_plain,
    open_plain,
    our_errors,
    read_plain,
)
from tidemill.core.shared_arrays import create_mapped, filled_mapping, map_array
from tidemill.wheels.files.checks import require
from tidemill.wheels.files.format import read_json
from tidemill.wheels.files.mapped import as_it_must_be, corrupt, table_in
from tidemill.wheels.loops.range_plan import VERSION
from tidemill.wheels.memory.store import RingStore
from tidemill.wheels.sharing.head import check_arrays

ROOT, LOCK = "root.bin", "writer.lock"
MAGIC = int.from_bytes(b"tidewhl3", "little")
MARK, WRITER, STATE, GENERATION, KEY_FILES = range(5)
"""Positions in the root: the magic number; the writer's id; its state; the newest generation; the number of
key files."""
WRITES, CLOSED, REPLACED = range(3)
"""States: the writer is alive, or was killed; it has closed; another has taken over the directory."""
ROOT_NUMBERS = 8
_HINT = "share the wheel again, in an empty directory"
SOON = 0.05
"""Seconds after which a waiting reader checks whether the writer is alive."""
PATIENCE = 10.0
"""Seconds after which a reader stops waiting for a live writer."""
HANDOVER = 1.0
"""Seconds for which a writer tries to lock: readers hold the lock briefly to test whether a writer lives."""
_OURS = re.compile(
    rf"{re.escape(LOCK)}|{re.escape(ROOT)}"
    r"|[0-9a-f]{16}-(wheel\.json|[0-9]+\.json|[0-9]+-\w+\.bin|keys-[0-9]+\.arrow)"
)
_STEP = "share wheel"
_publishers: weakref.WeakSet[Publisher] = weakref.WeakSet()


def is_shared(path: Path) -> bool:
    return is_plain(path / ROOT)


class Publisher:
    """The writer's side of a directory, which has one writer at a time."""

    def __init__(self, path: Path, described: Mapping[str, Any]) -> None:
        have_directory(path, step=_STEP)
        _refuse_others(path)
        self._path, self._maker = path, os.getpid()
        self._root: npt.NDArray[np.int64] | None = None
        self._lock = open_plain(path / LOCK, os.O_RDWR | os.O_CREAT, step=_STEP)
        try:
            _take(self._lock, path)
            _refuse_others(path)
            _take_over(path)
            _remove_ours(path)
            self._id = secrets.randbits(63)
            self._name = f"{self._id:016x}"
            self._write("wheel.json", json.dumps(dict(described)).encode())
        except BaseException:
            self.close()
            raise
        self.keys = 0
        """The number of published keys."""
        self._generation = 0
        self._head: npt.NDArray[np.int64] | None = None
        """The head of the newest generation."""
        _publishers.add(self)

    def require_own(self) -> None:
        """Raise in a forked process: it has the same files mapped, and would write to them, too."""
        if os.getpid() != self._maker:
            raise UserError(
                _STEP, expected="writes only by the process that shares the wheel",
                got="a process forked from it", hint="there, read it: tm.open_wheel(path)",
            )  # fmt: skip

    def publish(self, store: RingStore) -> None:
        """Move all arrays of a store into files; on failure the store is unchanged."""
        self.require_own()
        generation = self._generation + 1
        made: dict[str, npt.NDArray[Any]] = {}
        try:
            for name, array in store.arrays().items():
                file = self._path / f"{self._name}-{generation}-{name}.bin"
                mapped = create_mapped(file, array.nbytes, step=_STEP)
                made[name] = np.frombuffer(mapped, dtype=array.dtype)[: array.size].reshape(array.shape)
                made[name][...] = array
            shapes = {n: list(a.shape) for n, a in made.items()}
            self._write(f"{generation}.json", json.dumps(shapes).encode())
            if self._root is None:
                self._root = self._new_root(generation)
        except BaseException:
            self._remove(generation)
            raise
        for name, array in made.items():
            store.replace(name, array)
        self._head = made["head"]
        self._root[GENERATION] = generation
        before, self._generation = self._generation, generation
        self._remove(before)

    def publish_again(self, store: RingStore) -> None:
        """Publish a store that returned to its previous arrays, unless readers still have these."""
        if self._head is store.head:
            return
        try:
            self.publish(store)
        except BaseException:  # the arrays of readers do not change any more: `close` tells them
            self.close()
            store.on_change = store.on_undo = lambda store: None
            raise
        store.settle()

    def _remove(self, generation: int) -> None:
        with our_errors(_STEP, self._path):
            for pattern in (f"{self._name}-{generation}.json", f"{self._name}-{generation}-*.bin"):
                for old in self._path.glob(pattern):
                    old.unlink(missing_ok=True)

    def _new_root(self, generation: int) -> npt.NDArray[np.int64]:
        with appearing(self._path / ROOT, step=_STEP, durable=False) as file:
            root = np.frombuffer(filled_mapping(file.fileno(), 8 * ROOT_NUMBERS), dtype=np.int64)
            root[[MARK, WRITER, STATE, GENERATION]] = MAGIC, self._id, WRITES, generation
        return root

    def _write(self, name: str, content: Any) -> None:
        """Write a file of this writer atomically; it need not survive a crash of the machine."""
        with appearing(self._path / f"{self._name}-{name}", step=_STEP, durable=False) as file:
            file.write(content)

    def add_keys(self, keys: pa.Table) -> None:
        """Publish more keys to readers."""
        assert self._root is not None
        self.require_own()
        number = int(self._root[KEY_FILES])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, keys.schema) as writer:
            writer.write_table(keys)
        self._write(f"keys-{number}.arrow", sink.getvalue())
        self.keys += keys.num_rows
        self._root[KEY_FILES] = number + 1

    @property
    def closed(self) -> bool:
        """Whether this writer has released the directory."""
        return self._lock < 0

    def close(self) -> None:
        """Release the directory for other writers. The files stay for readers."""
        if self._lock >= 0:
            if self._root is not None and os.getpid() == self._maker:
                self._root[STATE] = CLOSED
            os.close(self._lock)
            self._lock = -1

    def withdraw(self) -> None:
        """Remove the files of this writer after a failed `share`."""
        try:
            with our_errors(_STEP, self._path):
                if self._root is not None:
                    self._root[STATE] = REPLACED
                    (self._path / ROOT).unlink(missing_ok=True)
                for file in self._path.glob(f"{self._name}-*"):
                    file.unlink(missing_ok=True)
        finally:
            self._root = None
            self.close()

    def __del__(self) -> None:
        if getattr(self, "_lock", -1) >= 0:
            self.close()


def _let_go() -> None:
    """Close the locks that a forked child inherits, so that they block nobody."""
    for publisher in _publishers:
        if publisher._lock >= 0:
            os.close(publisher._lock)
            publisher._lock = -1


os.register_at_fork(after_in_child=_let_go)


class Subscriber:
    """The reader's side of a directory. It needs no write permission."""

    def __init__(self, path: Path) -> None:
        self.path = path
        since = time.monotonic()
        while True:
            self._root = self._open_root()
            self._seen = memoryview(self._root)  # type: ignore[arg-type]
            self._name = f"{int(self._seen[WRITER]):016x}"
            file = path / f"{self._name}-wheel.json"
            try:
                found = read_json(file, _HINT)
                break
            except FileNotFoundError as gone:  # another writer has just taken over
                if time.monotonic() - since > PATIENCE / 10:
                    raise corrupt(file, "no such file", _HINT) from gone
                time.sleep(0.001)
        require(isinstance(found, dict), f"a description of a wheel in {file}", found)
        self.described: dict[str, Any] = found
        self._generation = 0
        self._key_files = 0

    def _open_root(self) -> npt.NDArray[np.int64]:
        file = self.path / ROOT
        try:
            root: npt.NDArray[np.int64] = map_array(file, np.dtype(np.int64), ROOT_NUMBERS, step="open wheel")
        except FileNotFoundError as gone:
            raise corrupt(file, "no such file", _HINT) from gone
        ours = root[MARK] == MAGIC and root[WRITER] >= 0
        require(bool(ours), f"the root of a wheel that is shared in {file}", root.tobytes())
        return root

    def stale(self) -> bool:
        """Whether there is a newer generation. Raises if the writer was replaced."""
        if self._seen[STATE] == REPLACED:
            raise UserError(
                "wheel query", expected=f"the writer that shared this wheel in {self.path}",
                got="another, which has shared one there since", hint="open it again: tm.open_wheel(path)",
            )  # fmt: skip
        return bool(self._seen[GENERATION] != self._generation)

    def writes(self) -> bool:
        """Whether the writer is alive and has not closed."""
        if self._seen[STATE] != WRITES:
            return False
        with our_errors("wheel query", self.path):
            try:
                lock = open_plain(self.path / LOCK, step="wheel query")
            except FileNotFoundError:
                return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(lock)

    def attach(self, store: RingStore) -> None:
        """Switch a store to the newest generation."""
        since = time.monotonic()
        while True:
            self.stale()
            generation = int(self._seen[GENERATION])
            try:
                found = self._arrays(generation, store)
                break
            except FileNotFoundError as gone:  # the writer has made a newer generation
                same = generation == int(self._seen[GENERATION])
                if time.monotonic() - since > (SOON if same else PATIENCE):
                    self.stale()
                    raise corrupt(Path(str(gone.filename)), "no such file", _HINT) from gone
                time.sleep(0)
        for name, array in found.items():
            store.replace(name, array)
        self._generation = generation

    def _arrays(self, generation: int, store: RingStore) -> dict[str, npt.NDArray[Any]]:
        file = self.path / f"{self._name}-{generation}.json"
        shapes = read_json(file, _HINT)
        kinds = store.kinds()
        named = isinstance(shapes, dict) and shapes.keys() == kinds.keys()
        require(named, f"shapes of {list(kinds)} in {file}", shapes)
        found: dict[str, npt.NDArray[Any]] = {}
        for name, kind in kinds.items():
            shape = shapes[name]
            plain = isinstance(shape, list) and all(type(n) is int and 0 <= n < 1 << 48 for n in shape)
            plain = plain and len(shape) == store.arrays()[name].ndim
            require(plain, f"the shape of {name} in {file}", shape)
            size = math.prod(shape)
            array = map_array(
                self.path / f"{self._name}-{generation}-{name}.bin", kind, size, step="open wheel"
            )
            found[name] = array.reshape(shape)
        file = self.path / f"{self._name}-{generation}-head.bin"
        require(found["head"].size > VERSION, f"a head in {file}", found["head"])
        settled = self._settled(found["head"], generation)
        with as_it_must_be(file, _HINT):
            check_arrays(settled, found, store)
        return found

    def _settled(self, head: npt.NDArray[np.int64], generation: int) -> npt.NDArray[np.int64]:
        """A consistent copy of the head. While slots close there is none: this waits."""
        since = time.monotonic()
        while True:
            copied = head.copy()
            if copied[VERSION] == head[VERSION] and not copied[VERSION] & 1:
                return copied
            if self._seen[GENERATION] != generation:  # these arrays are outdated: `attach` tries again
                raise FileNotFoundError(errno.ENOENT, "a newer generation", str(self.path))
            self.require_progress(since)
            time.sleep(0)

    def require_progress(self, since: float) -> None:
        """Raise if the writer died while slots were closing, or if waiting takes too long."""
        waited = time.monotonic() - since
        if waited > SOON and not self.writes():
            raise UserError(
                "wheel query", expected=f"a live writer in {self.path}", got="one that is gone",
                hint="it died while slots were closing; open what it saved",
            )  # fmt: skip
        if waited > PATIENCE:
            raise UserError(
                "wheel query", expected=f"a live writer in {self.path}",
                got=f"one that stopped {PATIENCE} s ago", hint="slots were closing; open what it saved",
            )  # fmt: skip

    def new_keys(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the keys that were published since the last call."""
        while self._key_files < self._seen[KEY_FILES]:
            file = self.path / f"{self._name}-keys-{self._key_files}.arrow"
            try:
                content = read_plain(file, step="open wheel")
            except FileNotFoundError as gone:
                self.stale()  # raises if another writer has taken over
                raise corrupt(file, "no such file", _HINT) from gone
            yield table_in(pa.py_buffer(content), schema, file, _HINT)
            self._key_files += 1


# --- the directory ----------------------------------------------------------------------------------


def _refuse_others(path: Path) -> None:
    """Raise if a directory has files that no writer made."""
    with our_errors(_STEP, path):
        for found in path.iterdir():
            if not _is_ours(found) or (found.name == ROOT and not _is_root(found)):
                raise UserError(
                    _STEP, expected="an empty directory, or one in which a wheel was shared",
                    got=f"{found}, which is another file", hint="nothing was touched: use another directory",
                )  # fmt: skip


def _remove_ours(path: Path) -> None:
    """Remove the files of earlier writers. Other files may have appeared just now: they stay."""
    with our_errors(_STEP, path):
        for old in path.iterdir():
            if old.name != LOCK and _is_ours(old):
                old.unlink(missing_ok=True)


def _is_ours(file: Path) -> bool:
    return is_plain(file) and _OURS.fullmatch(becomes(file.name)) is not None


def _is_root(file: Path) -> bool:
    with open(open_plain(file, step=_STEP), "rb") as root:
        content = root.read(8 * ROOT_NUMBERS + 1)
    return len(content) == 8 * ROOT_NUMBERS and int.from_bytes(content[:8], "little") == MAGIC


def _take(lock: int, path: Path) -> None:
    since = time.monotonic()
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as taken:
            if time.monotonic() - since > HANDOVER:
                raise UserError(
                    _STEP, expected=f"no other writer in {path}", got="one that is running",
                    hint="readers open it with tm.open_wheel(path)",
                ) from taken  # fmt: skip
            time.sleep(0.01)


def _take_over(path: Path) -> None:
    """Tell the readers of an earlier writer that its files are being removed."""
    if not is_plain(path / ROOT):
        return
    file = open_plain(path / ROOT, os.O_RDWR, step=_STEP)
    try:
        root = np.frombuffer(mmap.mmap(file, 8 * ROOT_NUMBERS), dtype=np.int64)
    finally:
        os.close(file)
    root[STATE] = REPLACED
