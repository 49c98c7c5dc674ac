"""Follow a file that a `StreamWriter` appends to: batches and punctuations, as soon as they are whole."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemill.core.batch import check_schema
from tidemill.core.clock import Clock
from tidemill.core.errors import UserError
from tidemill.io.chunks import step_of
from tidemill.io.feeds import Arrival, Feed, OpenFeed
from tidemill.io.growing_file import GrowingFile
from tidemill.io.stream_files import together
from tidemill.io.stream_format import ends_of_messages, read_batches, require_plain
from tidemill.plan.nodes import Source

_BLOCK = 4 << 20
_LONGEST = 1 << 30
"""The bytes of the longest message. A longer one is damage."""


class FollowStream(Feed):
    """An Arrow IPC stream in a file that grows; it ends with the stream."""

    about = "follow"

    def __init__(self, path: Path, **more: Any) -> None:
        super().__init__(**more)
        self.path = path

    def __repr__(self) -> str:
        return f"follow({str(self.path)!r})"

    def open(self, source: Source, position: Any, clock: Clock) -> OpenFeed:
        return _OpenStream(GrowingFile(self.path, source, position), source, position, clock, self._poll)


class _OpenStream(OpenFeed):
    def __init__(self, file: GrowingFile, source: Source, position: Any, clock: Clock, poll: float) -> None:
        super().__init__(position, clock, poll)
        self._file, self._source = file, source
        self._step = step_of(source, file.place)
        self._header, self._schema = b"", pa.schema([])
        self._found: deque[Arrival] = deque()

    def _look(self) -> Arrival | None:
        if self._found:
            return self._found.popleft()
        if not self._file.there():
            return None
        self._file.require_same()
        if not self._header and not self._read_header():
            return None
        start = max(self._file.offset, len(self._header))
        data, ends, self.ended = self._messages(start)
        if not ends:
            if not self.ended:
                self._file.require_in_place()
            return None
        self.ended = False  # until these were accepted
        items = read_batches(self._header, data[: ends[-1]], self._schema, self._step)
        positions = (self._file.position(start + end) for end in ends)
        self._found.extend(together(zip(positions, items)))
        return self._found.popleft()

    def accept(self) -> None:
        super().accept()
        self._file.move_to(self.position)

    def close(self) -> None:
        self._file.close()

    def _read_header(self) -> bool:
        data, ends, _ = self._messages(0)
        if not ends:
            return False
        header = data[: ends[0]]
        try:
            self._schema = pa.ipc.open_stream(header).schema
        except (pa.ArrowException, OSError) as broken:
            raise UserError(self._step, f"cannot be read: {broken}") from broken
        require_plain(self._schema, self._step)
        check_schema(self._schema, self._source.schema, self._source.reading, step=self._step)
        self._header = header
        return True

    def _messages(self, start: int) -> tuple[bytes, list[int], bool]:
        """Return bytes from an offset on, the ends of whole messages in them, and whether the stream ends."""
        most = _BLOCK
        while True:
            data = self._file.read(most, start=start)
            ends, ended = ends_of_messages(data, self._step)
            if ends or ended or len(data) < most:
                return data, ends, ended
            if most >= _LONGEST:
                raise UserError(
                    self._step,
                    expected=f"messages of at most {_LONGEST} bytes",
                    got=f"a longer one at byte {start}",
                )
            most *= 4
