"""Follow a directory or a glob in which files appear: each is a part of the stream that does not change."""

from __future__ import annotations

import glob
import itertools
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tidemill.core.clock import Clock
from tidemill.core.errors import UserError
from tidemill.core.files import our_errors
from tidemill.io.chunks import SIZES, step_of
from tidemill.io.feeds import Arrival, Feed, OpenFeed, unfit_position
from tidemill.io.files import open_path
from tidemill.io.other_columns import ReadAgain
from tidemill.io.stream_files import StreamFile, together
from tidemill.plan.nodes import Source

STREAM_SUFFIX = ".arrows"
_HIDDEN = (".", "_")
_UNFINISHED = (".tmp", ".part", ".partial", ".crdownload", "~")


class FollowFolder(Feed):
    """Parts of a stream that appear as files.

    Parts that are there are read in the order of their names. A part that appears later is read then,
    whatever its name is. Parts must appear whole, by rename; names that begin with `.` or `_`, or end like
    names of unfinished files, are left out. The position has the parts that were read and are still there,
    with their sizes and times; a part that changed after it was read is an error.
    """

    about = "follow"

    def __init__(self, pattern: str, **more: Any) -> None:
        super().__init__(**more)
        self.pattern = pattern

    def __repr__(self) -> str:
        return f"follow({self.pattern!r})"

    def open(self, source: Source, position: Any, clock: Clock) -> OpenFeed:
        return _OpenFolder(self.pattern, source, position, clock, self._poll)


@dataclass(frozen=True)
class _Part:
    """A part that is being read: its name, its size and time of change, and how much of it was read."""

    part: str
    stamp: list[int]
    count: int = 0


class _OpenFolder(OpenFeed):
    def __init__(self, pattern: str, source: Source, position: Any, clock: Clock, poll: float) -> None:
        super().__init__(position, clock, poll)
        self._pattern, self._source = pattern, source
        self._appeared = not pattern.endswith((os.sep, "/")) or os.path.isdir(pattern)
        self._is_folder = os.path.isdir(pattern) or pattern.endswith((os.sep, "/"))
        self._base = pattern if self._is_folder else _fixed(pattern)
        self._done, self._reading = _checked(position, source)
        self._unread: list[str] = []
        """Parts that were there when the directory was last read, the first one last."""
        self._arrivals: Iterator[Arrival] | None = None
        """What is left of the part that is being read."""

    def _look(self) -> Arrival | None:
        if self._arrivals is None and not self._next_part():
            return None
        assert self._arrivals is not None and self._reading is not None
        found = next(self._arrivals, None)
        if found is not None:
            self._reading = replace(self._reading, count=found.position)
            return replace(found, position={"done": dict(self._done), **asdict(self._reading)})
        self._done[self._reading.part] = self._reading.stamp
        self._reading, self._arrivals = None, None
        # That it was read to its end is news, even if it had no rows.
        return Arrival({"done": dict(self._done)})

    def _next_part(self) -> bool:
        """Open the next part; return whether there is one."""
        if self._reading is None:
            self._unread = self._unread or self._scanned()
            if not self._unread:
                return False
            name = self._unread.pop()
            self._reading = _Part(name, self._stamp(name))
            if not self._reading.stamp:
                self._reading = None
                raise self._changed(name, "no file any more: it was removed before it was read")
        elif self._stamp(self._reading.part) != self._reading.stamp:
            raise self._changed(self._reading.part, "another file, or none, after some of it was read")
        self._arrivals = self._read(self._reading)
        return True

    def _scanned(self) -> list[str]:
        """Return the parts that are there and were not read, the first one last."""
        there = self._there()
        self._done = {name: stamp for name, stamp in self._done.items() if name in there}
        for name, stamp in self._done.items():
            if stamp != there[name]:
                raise self._changed(name, "other bytes after it was read")
        return sorted((name for name in there if name not in self._done), reverse=True)

    def _changed(self, name: str, got: str) -> UserError:
        return UserError(
            step_of(self._source, f"file {name}"), expected="a part that stays as it is until it was read",
            got=got, hint="give new rows a new name, and rename the file when it is complete",
        )  # fmt: skip

    def _read(self, part: _Part) -> Iterator[Arrival]:
        """Yield what a part has behind its count, with the counts as positions."""
        path = os.path.join(self._base, part.part)
        if path.endswith(STREAM_SUFFIX):
            yield from together(
                enumerate(itertools.islice(StreamFile(Path(path)), part.count, None), part.count + 1)
            )
            return
        rows, again = 0, ReadAgain(path)
        for chunk in open_path(path, self._source, SIZES):
            rows += chunk.batch.num_rows
            if rows > part.count:
                batch = chunk.batch.slice(max(0, chunk.batch.num_rows - (rows - part.count)))
                yield Arrival(rows, batch, others=again.others(rows - batch.num_rows, batch.num_rows))

    def _there(self) -> dict[str, list[int]]:
        """Return the parts that are there, by name, with their sizes and times of change."""
        with our_errors(step_of(self._source), self._base or "."):
            self._appeared = self._appeared or os.path.exists(self._base)
            if not self._appeared:  # yet; one that was there and is gone is an error
                return {}
            if self._is_folder:
                paths = list(_inside(self._base))
            else:
                paths = glob.glob(self._pattern, recursive=True)
            names = (os.path.relpath(path, self._base or ".") for path in paths)
            found = {}
            for name in names:
                if not _left_out(name):
                    stamp = self._stamp(name)
                    if stamp:
                        found[name] = stamp
            return found

    def _stamp(self, name: str) -> list[int]:
        """Return the size and the time of change of a file; nothing if it is gone, or no file."""
        try:
            found = os.stat(os.path.join(self._base, name))
        except FileNotFoundError:
            return []
        return [found.st_size, found.st_mtime_ns] if stat.S_ISREG(found.st_mode) else []


def _inside(folder: str) -> Iterator[str]:
    """Yield the files in a directory and below."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(_HIDDEN):
                continue
            if entry.is_dir():
                yield from _inside(entry.path)
            else:
                yield entry.path


def _left_out(name: str) -> bool:
    return any(part.startswith(_HIDDEN) for part in Path(name).parts) or name.endswith(_UNFINISHED)


def _fixed(pattern: str) -> str:
    """Return the directory in a glob before its first wildcard."""
    parts = []
    for part in Path(pattern).parent.parts:
        if glob.has_magic(part):
            break
        parts.append(part)
    return str(Path(*parts)) if parts else ""


def _checked(position: Any, source: Source) -> tuple[dict[str, list[int]], _Part | None]:
    if position is None:
        return {}, None
    found = position if isinstance(position, dict) else {}
    done = found.get("done")
    good = isinstance(done, dict) and all(isinstance(stamp, list) for stamp in done.values())
    part, stamp, count = found.get("part", ""), found.get("stamp", []), found.get("count", 0)
    if not (
        good and isinstance(part, str) and isinstance(stamp, list) and isinstance(count, int) and count >= 0
    ):
        raise unfit_position(position, source, "{'done': {part: [size, time]}, ...}")
    return dict(found["done"]), _Part(part, stamp, count) if part else None
