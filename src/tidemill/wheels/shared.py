"""One writer, readers in other processes: the arrays of a wheel in files that both map to memory.

The writer's arrays are those of the newest *generation*, which has a file for each; growing makes a new
one. Readers see in `root` which that is. While slots close, the version in the head is odd, and who
reads meanwhile reads again: nobody sees half of it.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.wheels.files import have_directory, read_json
from tidemill.wheels.store import RingStore

ROOT, LOCK = "root.bin", "writer.lock"
GENERATION, KEY_FILES = range(2)
"""The numbers in the root: the newest generation, and how many files of keys there are."""
PATIENCE = 10.0
"""Seconds after which a reader thinks that the writer has died while slots closed."""


def is_shared(path: Path) -> bool:
    return (path / ROOT).exists()


class Publisher:
    """The writer's side of a directory; there is one for each directory at a time."""

    def __init__(self, path: Path, described: Mapping[str, Any]) -> None:
        have_directory(path, step="share wheel")
        self._path = path
        self._lock = (path / LOCK).open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as taken:
            self._lock.close()
            raise UserError(
                "share wheel", expected=f"no other writer in {path}", got="one that is running",
                hint="readers open it with tm.open_wheel(path)",
            ) from taken  # fmt: skip
        for old in path.iterdir():
            if old.name != LOCK:
                old.unlink()
        _write_json(path / "wheel.json", dict(described))
        self.keys = 0
        """How many keys readers know."""
        self._generation = 0
        self._root: npt.NDArray[np.int64] | None = None

    def publish(self, store: RingStore) -> None:
        """Have the arrays of a store in files from now on."""
        generation = self._generation + 1
        shapes = {}
        for name, array in store.arrays().items():
            mapped = _map(self._path / f"{generation}-{name}.bin", array.nbytes, create=True)
            shared = np.frombuffer(mapped, dtype=array.dtype)[: array.size].reshape(array.shape)
            shared[...] = array
            store.replace(name, shared)
            shapes[name] = list(array.shape)
        _write_json(self._path / f"{generation}.json", shapes)
        if self._root is None:
            self._root = np.frombuffer(_map(self._path / ROOT, 64, create=True), dtype=np.int64)
        self._root[GENERATION] = generation
        for old in self._path.glob(f"{self._generation}[-.]*"):
            old.unlink()
        self._generation = generation

    def add_keys(self, keys: pa.Table) -> None:
        """Tell readers of more keys."""
        assert self._root is not None
        number = int(self._root[KEY_FILES])
        file = self._path / f"keys-{number}.arrow"
        temporary = file.with_suffix(".tmp")
        with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, keys.schema) as writer:
            writer.write_table(keys)
        os.replace(temporary, file)
        self.keys += keys.num_rows
        self._root[KEY_FILES] = number + 1

    def close(self) -> None:
        """Let another writer have the directory."""
        self._lock.close()


class Subscriber:
    """A reader's side."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.described: dict[str, Any] = read_json(path / "wheel.json")
        self._root = np.frombuffer(_map(path / ROOT, 64, create=False), dtype=np.int64)
        self._seen = memoryview(self._root)  # type: ignore[arg-type]
        self._generation = 0
        self._key_files = 0

    def stale(self) -> bool:
        """Whether there is a newer generation."""
        return bool(self._seen[GENERATION] != self._generation)

    def attach(self, store: RingStore) -> None:
        """Read the newest generation from now on."""
        since = time.monotonic()
        while True:
            generation = int(self._seen[GENERATION])
            try:
                shapes = json.loads((self._path / f"{generation}.json").read_text())
                found = {}
                for name, kind in store.kinds().items():
                    size = int(np.prod(shapes[name]))
                    file = self._path / f"{generation}-{name}.bin"
                    mapped = _map(file, size * kind.itemsize, create=False)
                    found[name] = np.frombuffer(mapped, dtype=kind)[:size].reshape(shapes[name])
            except FileNotFoundError:  # the writer went on meanwhile
                if time.monotonic() - since > PATIENCE:
                    raise
                time.sleep(0)
                continue
            for name, array in found.items():
                store.replace(name, array)
            self._generation = generation
            return

    def new_keys(self) -> Iterator[pa.Table]:
        """Keys that were added since this was asked last."""
        while self._key_files < self._seen[KEY_FILES]:
            file = self._path / f"keys-{self._key_files}.arrow"
            yield pa.ipc.open_file(pa.memory_map(str(file))).read_all()
            self._key_files += 1


def _map(path: Path, size: int, *, create: bool) -> mmap.mmap:
    size = max(8, -(-size // 8) * 8)
    if create:
        with path.open("wb") as file:
            file.truncate(size)
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), size)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".json")
    with os.fdopen(handle, "w") as file:
        json.dump(content, file)
    os.replace(temporary, path)
