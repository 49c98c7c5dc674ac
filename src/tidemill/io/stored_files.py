"""Files on the local disk, in an object store, or in any file system that Arrow knows: find and open them."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from tidemill.core.errors import UserError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_MAGIC = re.compile(r"[*?[]")
_NULL_KEY = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, order=True)
class StoredFile:
    """A file: its path, in a file system of Arrow's unless it is on the local disk."""

    path: str
    system: Any = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.path

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.path).name

    @property
    def endings(self) -> list[str]:
        """The endings of the name in small letters: `.csv`, `.gz`."""
        return [ending.lower() for ending in PurePosixPath(self.path).suffixes]

    @property
    def size(self) -> int:
        """How many bytes it has."""
        if self.system is None:
            return os.stat(self.path).st_size
        return int(self.system.get_file_info(self.path).size)

    @property
    def keys(self) -> dict[str, str | None]:
        """The values that names of directories give to columns, as Hive has them.

        >>> StoredFile("trips/year=2026/city=New%20York/a.parquet").keys
        {'year': '2026', 'city': 'New York'}
        """
        pairs = (part.partition("=") for part in PurePosixPath(self.path).parent.parts)
        return {
            unquote(name): None if value == _NULL_KEY else unquote(value)
            for name, equals, value in pairs
            if name and equals
        }

    def open(self) -> pa.NativeFile:
        """Open it for reading at any place."""
        return pa.OSFile(self.path) if self.system is None else self.system.open_input_file(self.path)

    def absolute(self) -> StoredFile:
        """The same file for another process."""
        return StoredFile(os.path.abspath(self.path)) if self.system is None else self


def find_files(pattern: str, system: Any, step: str) -> list[StoredFile]:
    """Return the files at a path, below a directory or of a glob, in the order of their names.

    Files and directories whose names start with `_` or a dot are left out, unless they are named, or the glob
    has a part that starts so.
    """
    tail = ""
    if system is None and _SCHEME.match(pattern):
        system, pattern, tail = _of_uri(pattern, step)
    if system is None and pattern.startswith("~"):
        pattern = os.path.expanduser(pattern)
    found = _on_disk(pattern + tail, step) if system is None else _in_store(pattern, tail, system)
    if not found:
        where = f"the working directory is {os.getcwd()}" if system is None else f"in {system!r}"
        raise UserError(
            step, expected="a file, a directory with files, or a glob that matches",
            got=f"nothing at {pattern + tail!r}", hint=where,
        )  # fmt: skip
    return sorted(found)


def _of_uri(uri: str, step: str) -> tuple[Any, str, str]:
    """Return the file system of a URI, the path in it, and the rest from the first wildcard on."""
    import pyarrow.fs as fs

    scheme, rest = uri[: _SCHEME.match(uri).end()], uri[_SCHEME.match(uri).end() :]  # type: ignore[union-attr]
    parts = rest.split("/")
    plain = next((at for at, part in enumerate(parts) if _MAGIC.search(part)), len(parts))
    if scheme.lower() in ("http://", "https://"):
        raise UserError(
            step, expected="a path, or an address of a file system of Arrow's, such as s3://", got=repr(uri),
            hint=f"download it first, or read it as a frame: tm.read(pandas.read_csv({uri!r}), time=...)",
        )  # fmt: skip
    system, path = fs.FileSystem.from_uri(scheme + "/".join(parts[:plain]))
    tail = "".join(f"/{part}" for part in parts[plain:])
    return (None if isinstance(system, fs.LocalFileSystem) else system), path, tail


def _on_disk(pattern: str, step: str) -> set[StoredFile]:
    if os.path.isfile(pattern):
        return {StoredFile(str(Path(pattern)))}
    files: set[Path] = set()
    for match in [Path(pattern)] if os.path.lexists(pattern) else _matches(pattern):
        files.update(_inside(match) if match.is_dir() else [match])
    for file in files:
        _check_plain(file, step)
    return {StoredFile(str(file)) for file in files}


def _matches(pattern: str) -> Iterator[Path]:
    """Yield the files and directories of a glob."""
    parts = Path(pattern).parts
    plain = next((at for at, part in enumerate(parts) if _MAGIC.search(part)), len(parts))
    hidden = any(map(_is_hidden, parts[plain:]))
    for match in map(Path, glob.glob(pattern, recursive=True)):
        if hidden or not any(map(_is_hidden, match.parts[plain:])):
            yield match


def _check_plain(file: Path, step: str) -> None:
    """Reject pipes, sockets and devices: reading a pipe might never end."""
    if not stat.S_ISREG(os.stat(file).st_mode):
        raise UserError(
            step, expected=f"a file at {file}", got="a pipe, a socket or a device",
            hint="open it yourself, and give a reader: pyarrow.ipc.open_stream(...)",
        )  # fmt: skip


def _inside(folder: Path) -> Iterator[Path]:
    """Yield the files in a directory and below.

    A directory that cannot be listed is an error, because its rows would be missing.
    """
    for path, inner, files in os.walk(folder, onerror=_raise):
        inner[:] = sorted(name for name in inner if not _is_hidden(name))
        for name in files:
            if not _is_hidden(name) and (found := Path(path, name)).is_file():
                yield found


def _raise(failed: OSError) -> None:
    raise failed


def _is_hidden(name: str) -> bool:
    return name.startswith(("_", "."))


def _in_store(pattern: str, tail: str, system: Any) -> set[StoredFile]:
    import pyarrow.fs as fs

    if not tail and _MAGIC.search(pattern):
        parts = pattern.split("/")
        plain = next(at for at, part in enumerate(parts) if _MAGIC.search(part))
        pattern, tail = "/".join(parts[:plain]), "".join(f"/{part}" for part in parts[plain:])
    info = system.get_file_info(pattern)
    if info.type == fs.FileType.File:
        return {StoredFile(pattern, system)}
    if info.type == fs.FileType.NotFound and pattern:
        return set()
    fits = re.compile(_translated(tail) + "(/.*)?") if tail else None
    named = any(map(_is_hidden, filter(None, tail.split("/"))))
    found = set()
    for one in system.get_file_info(fs.FileSelector(pattern, recursive=True)):
        below = one.path.removeprefix(pattern).strip("/")
        said = fits is not None and fits.fullmatch("/" + below)
        hidden = not named and any(map(_is_hidden, below.split("/")))
        if one.type == fs.FileType.File and (said if fits else True) and not hidden:
            found.add(StoredFile(one.path, system))
    return found


def _translated(pattern: str) -> str:
    """Return a glob as a regular expression: `*` and `?` are within a name, `**` is any directories.

    >>> re.fullmatch(_translated("/**/[!a]?.csv"), "/2026/bc.csv") is not None
    True
    """
    found = re.split(r"(/\*\*(?=/|$)|\*|\?|\[!?]?[^]]*\])", pattern)
    known = {"/**": "(?:/.*)?", "*": "[^/]*", "?": "[^/]"}
    return "".join(
        known.get(part) or (_letters(part) if at % 2 else re.escape(part)) for at, part in enumerate(found)
    )


def _letters(part: str) -> str:
    """Return some letters of a glob, `[a-c]` or `[!a-c]`, as a regular expression."""
    inside = re.sub(r"([\\^\[\]])", r"\\\1", part[1:-1])
    return f"[^/{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
