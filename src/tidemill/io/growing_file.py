"""A file that another program appends to: its bytes from an offset on, and whether it is still the same."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from tidemill.core.errors import UserError
from tidemill.core.files import our_errors
from tidemill.io.chunks import step_of
from tidemill.io.feeds import unfit_position
from tidemill.plan.nodes import Source

_HEAD = 256


class GrowingFile:
    """The bytes behind an offset, which is the position.

    A position also has a checksum of the first bytes, so that another file of the same name is recognised.
    """

    def __init__(self, path: Path, source: Source, position: Any) -> None:
        self._path, self._source = path, source
        self.offset, self._head = _checked(position, source)
        self._descriptor: int | None = None

    @property
    def place(self) -> str:
        return f"file {self._path}"

    def there(self) -> bool:
        """Open the file, if there is one."""
        if self._descriptor is None:
            with our_errors(step_of(self._source, self.place), self._path):
                try:
                    self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                except FileNotFoundError:
                    if self.offset:
                        raise self._gone("no file there") from None
                    return False
        return True

    def read(self, most: int, *, start: int | None = None) -> bytes:
        """Return bytes from the offset on, or from `start`; as many as there are, at most so many."""
        assert self._descriptor is not None
        with our_errors(step_of(self._source, self.place), self._path):
            return os.pread(self._descriptor, most, self.offset if start is None else start)

    def require_same(self) -> None:
        """Raise an error if the file was cut, or has other first bytes than when it was read."""
        assert self._descriptor is not None
        size = os.fstat(self._descriptor).st_size
        if size < self.offset:
            raise self._gone(f"one of {size} bytes: it was truncated")
        if self._head and self._checksum(self.offset) != self._head:
            raise self._gone("one with another beginning")

    def require_in_place(self) -> None:
        """Raise an error if the path now has another file. The one that is open was read to its end."""
        assert self._descriptor is not None
        here = os.fstat(self._descriptor)
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            raise self._gone("no file: it was removed or renamed") from None
        if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
            raise self._gone("another file: it was rotated")

    def position(self, offset: int, **more: Any) -> dict[str, Any]:
        """Return the position at an offset, as JSON."""
        return {"offset": offset, "head": self._checksum(offset), **more}

    def move_to(self, position: dict[str, Any]) -> None:
        self.offset, self._head = position["offset"], position["head"]

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _checksum(self, offset: int) -> str:
        first = self.read(min(offset, _HEAD), start=0)
        return hashlib.sha256(first).hexdigest()[:16]

    def _gone(self, got: str) -> UserError:
        name = self._source.name
        return UserError(
            step_of(self._source, self.place), expected=f"the file that was read up to byte {self.offset}",
            got=got, hint="what is unread of the old file is to be read from it; "
            f"live.positions.pop({name!r}) begins the file that is there now at its beginning",
        )  # fmt: skip


def _checked(position: Any, source: Source) -> tuple[int, str]:
    if position is None:
        return 0, ""
    offset = position.get("offset") if isinstance(position, dict) else None
    head = position.get("head") if isinstance(position, dict) else None
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0 or not isinstance(head, str):
        raise unfit_position(position, source, "{'offset': bytes, ...}")
    return offset, head
