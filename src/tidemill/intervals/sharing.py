"""Share an index between its writer and readers in other processes, by files that all of them map.

A *generation* names a file for each array that readers need. The writer makes another one when an array is
too small. The root has the number of the newest generation, and readers look at it before each answer. They
wait for nothing: what a writer has shown stays readable when it is gone, even if it was killed.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.core.errors import UserError
from tidemill.core.files import (
    appearing,
    becomes,
    have_directory,
    lock,
    open_plain,
    our_errors,
    read_plain,
)
from tidemill.core.shared_arrays import create_mapped, map_array

Ints = npt.NDArray[np.int64]
Shape = tuple[int, ...]
_INT: np.dtype[Any] = np.dtype(np.int64)
ROOT, LOCK = "index.bin", "writer.lock"
MARK, STATE, GENERATION = range(3)
"""Numbers of the root: a magic number, the state of the writer, and the newest generation."""
MAGIC = int.from_bytes(b"tideidx1", "little")
WRITES, CLOSED, REPLACED = range(3)
"""States: the writer is alive, or was killed; it has closed; another one has taken over the directory."""
_ROOT_NUMBERS = 8
_OURS = re.compile(rf"{re.escape(ROOT)}|{re.escape(LOCK)}|[0-9a-f]{{16}}-([0-9]+\.json|[0-9]+-[a-z]+\.bin)")
_PATIENCE = 1.0
"""Seconds for which a reader looks for a generation whose files are being replaced."""


class Publisher:
    """The writer's side of a directory."""

    def __init__(self, path: Path, described: dict[str, Any]) -> None:
        self._step = "share index"
        have_directory(path, step=self._step)
        self._path, self._described, self._made, self._process = path, described, 0, os.getpid()
        self._root: Ints | None = None
        self._lock = open_plain(path / LOCK, os.O_RDWR | os.O_CREAT, step=self._step)
        try:
            self._take_over()
        except BaseException:
            self.close()
            raise
        self._name = f"{secrets.randbits(63):016x}"
        self._files: dict[int, Path] = {}
        """The file of each array, by its address."""
        self._generation = 0

    def _take_over(self) -> None:
        """Remove the files of an earlier writer, and tell its readers."""
        if not lock(self._lock):
            raise UserError(
                self._step, expected=f"no other writer in {self._path}", got="one that is running",
                hint="readers open it with SharedIndex",
            )  # fmt: skip
        with our_errors(self._step, self._path):
            found = list(self._path.iterdir())
            for file in found:
                if _OURS.fullmatch(becomes(file.name)) is None:
                    raise UserError(
                        self._step, expected="an empty directory, or one in which an index was shared",
                        got=f"{file}, which is another file",
                        hint="nothing was touched: use another directory",
                    )  # fmt: skip
            if (root := self._path / ROOT) in found:
                _root_of(root, self._step)[STATE] = REPLACED
            for file in found:
                if file.name != LOCK:
                    file.unlink(missing_ok=True)

    def array(self, name: str, shape: tuple[int, ...]) -> Ints:
        """Return a new array of zeros in a file."""
        self._made += 1
        file = self._path / f"{self._name}-{self._made}-{name}.bin"
        size = math.prod(shape)
        mapped = create_mapped(file, 8 * size, step=self._step)
        found = np.frombuffer(mapped, dtype=np.int64)[:size].reshape(shape)
        self._files[found.ctypes.data] = file
        return found

    def publish(self, arrays: dict[str, Ints]) -> None:
        """Make a generation of arrays that `array` returned; the files of others go."""
        generation = self._generation + 1
        named = {n: [self._files[a.ctypes.data].name, list(a.shape)] for n, a in arrays.items()}
        self._write(f"{generation}.json", json.dumps({**self._described, "arrays": named}).encode())
        if self._root is None:
            with appearing(self._path / ROOT, step=self._step, durable=False) as file:
                numbers = np.zeros(_ROOT_NUMBERS, dtype=np.int64)
                numbers[[MARK, GENERATION]] = MAGIC, generation
                file.write(numbers.tobytes())
            self._root = _root_of(self._path / ROOT, self._step)
        self._root[GENERATION] = generation
        kept = {a.ctypes.data for a in arrays.values()}
        with our_errors(self._step, self._path):
            for address in [a for a in self._files if a not in kept]:
                self._files.pop(address).unlink(missing_ok=True)
            (self._path / f"{self._name}-{self._generation}.json").unlink(missing_ok=True)
        self._generation = generation

    def _write(self, name: str, content: bytes) -> None:
        with appearing(self._path / f"{self._name}-{name}", step=self._step, durable=False) as file:
            file.write(content)

    def close(self) -> None:
        """Release the directory for other writers. The files stay for readers."""
        if self._lock >= 0:
            # A forked child has the same file mapped: its end is not that of the writer.
            if self._root is not None and os.getpid() == self._process:
                self._root[STATE] = CLOSED
            os.close(self._lock)
            self._lock = -1

    def __del__(self) -> None:
        if getattr(self, "_lock", -1) >= 0:
            self.close()


def _root_of(file: Path, step: str) -> Ints:
    """Map the root of a writer, to write it."""
    found: Ints = map_array(file, np.dtype(np.int64), _ROOT_NUMBERS, step=step, write=True)
    return found


class Subscriber:
    """A reader's side of a directory."""

    def __init__(self, path: Path, described: dict[str, Any], shapes: Mapping[str, Shape]) -> None:
        """`shapes` are those of the arrays: the least length, and the other dimensions."""
        self._path, self._described, self._shapes = path, described, shapes
        self._step = "open shared index"
        try:
            self._root: Ints = map_array(path / ROOT, np.dtype(np.int64), _ROOT_NUMBERS, step=self._step)
        except FileNotFoundError as gone:
            raise UserError(
                self._step, expected=f"a directory in which an index is shared: {path}", got="no such file",
                hint="share one: index.share(path)",
            ) from gone  # fmt: skip
        if self._root[MARK] != MAGIC:
            raise UserError(self._step, expected=f"the root of an index in {path / ROOT}", got="another file")
        self.generation = 0

    def is_stale(self) -> bool:
        """Return whether there is a newer generation; raise if another writer has taken over."""
        if self._root[STATE] == REPLACED:
            raise UserError(
                self._step, expected=f"the writer that shared its index in {self._path}",
                got="another, which has shared one there since", hint="open it again",
            )  # fmt: skip
        return bool(self._root[GENERATION] != self.generation)

    @property
    def writer(self) -> str:
        """The state of the writer: "alive", or "gone", after which nothing changes any more."""
        if self._root[STATE] != WRITES:
            return "gone"
        descriptor = open_plain(self._path / LOCK, step=self._step)
        try:
            return "gone" if lock(descriptor) else "alive"
        finally:
            os.close(descriptor)

    def arrays(self) -> dict[str, Ints]:
        """Return the arrays of the newest generation."""
        since = time.monotonic()
        while True:
            self.is_stale()
            generation = int(self._root[GENERATION])
            try:
                found = self._arrays(generation)
                self.generation = generation
                return found
            except FileNotFoundError as gone:
                # The writer has made a newer generation, and removed the files of this one.
                if time.monotonic() - since > _PATIENCE:
                    raise UserError(
                        self._step, expected=f"the files of generation {generation} in {self._path}",
                        got=f"{gone}", hint="share the index again",
                    ) from gone  # fmt: skip
                time.sleep(0)

    def _arrays(self, generation: int) -> dict[str, Ints]:
        files = sorted(self._path.glob(f"*-{generation}.json"))
        if not files:
            raise FileNotFoundError(f"generation {generation} of an index in {self._path}")
        said = self._said(files[0])
        for name, value in self._described.items():
            if said.get(name) != value:
                raise UserError(
                    self._step, expected=f"an index of the same aggregates: {name} is {value}",
                    got=f"{said.get(name)}", hint="open it with the aggregates of its writer",
                )  # fmt: skip
        found = {}
        for name, (least, *others) in self._shapes.items():
            match said["arrays"].get(name):
                case [str(file), [int(n), *inner]] if least <= n < 1 << 40 and inner == others:
                    if _OURS.fullmatch(file) is not None:
                        array = map_array(self._path / file, _INT, math.prod((n, *others)), step=self._step)
                        found[name] = array.reshape((n, *others))
                        continue
            raise UserError(
                self._step, expected=f"the file and the shape of {name} in {files[0]}",
                got=f"{said['arrays'].get(name)!r:.200}", hint="the file is damaged: share the index again",
            )  # fmt: skip
        return found

    def _said(self, file: Path) -> dict[str, Any]:
        """Return what the writer says of a generation."""
        try:
            said = json.loads(read_plain(file, step=self._step))
        except ValueError:
            said = None
        if not isinstance(said, dict) or not isinstance(said.get("arrays"), dict):
            raise UserError(
                self._step, expected=f"the arrays of an index in {file}", got="something else",
                hint="the file is damaged: share the index again",
            )  # fmt: skip
        return said
