"""Follow a file of lines that is appended to: CSV with a header, or JSON lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidemill.core.clock import Clock
from tidemill.core.errors import UserError
from tidemill.io.chunks import step_of
from tidemill.io.feeds import Arrival, Feed, OpenFeed, arrival_of, unfit_position
from tidemill.io.growing_file import GrowingFile
from tidemill.io.lines import LONGEST, BadLine, LineParser, OnBad
from tidemill.plan.nodes import Source

_BLOCK = 1 << 20


class FollowText(Feed):
    """A file of lines that grows. A last line without a line break is still being written, and waits."""

    about = "follow"

    def __init__(self, path: Path, format: str, on_bad: OnBad | None, **more: Any) -> None:
        super().__init__(**more)
        self.path, self._format, self._on_bad = path, format, on_bad
        self.bad_lines = 0
        """How many lines were given to `on_bad`."""

    def __repr__(self) -> str:
        return f"follow({str(self.path)!r}, format={self._format!r})"

    def open(self, source: Source, position: Any, clock: Clock) -> OpenFeed:
        file = GrowingFile(self.path, source, position)
        bad = None if self._on_bad is None else self._bad
        return _OpenText(
            file, LineParser(source, self._format, file.place, bad), source, position, clock, self._poll
        )

    def _bad(self, line: BadLine) -> None:
        assert self._on_bad is not None
        self.bad_lines += 1
        self._on_bad(line)


class _OpenText(OpenFeed):
    def __init__(
        self, file: GrowingFile, parser: LineParser, source: Source, position: Any, clock: Clock, poll: float
    ) -> None:
        super().__init__(position, clock, poll)
        self._file, self._parser, self._source = file, parser, source
        self._line = 1 if position is None else _line_of(position, source)

    def _look(self) -> Arrival | None:
        if not self._file.there():
            return None
        self._file.require_same()
        if self._parser.needs_header and not self._read_header():
            return None
        data = self._whole_lines(self._file.offset)
        if not data:
            self._file.require_in_place()
            return None
        rows = self._parser.rows(data, self._line, self._file.offset)
        lines = data.count(b"\n")
        return arrival_of(self._file.position(self._file.offset + len(data), line=self._line + lines), rows)

    def accept(self) -> None:
        super().accept()
        self._file.move_to(self.position)
        self._line = self.position["line"]

    def close(self) -> None:
        self._file.close()

    def _read_header(self) -> bool:
        lines = self._whole_lines(0)
        line = next((line for line in lines.splitlines(keepends=True) if line.strip()), None)
        if line is None:
            return False
        self._parser.read_header(line)
        if self._file.offset == 0:  # rows begin after it
            end = lines.index(line) + len(line)
            self._line += lines[:end].count(b"\n")
            self._file.move_to(self._file.position(end))
        return True

    def _whole_lines(self, start: int) -> bytes:
        """Return some whole lines from an offset on; nothing if there is none yet."""
        most = _BLOCK
        while True:
            data = self._file.read(most, start=start)
            end = data.rfind(b"\n") + 1
            if end or len(data) < most:
                return data[:end]
            if most >= LONGEST:
                raise UserError(
                    step_of(self._source, self._file.place), expected=f"lines of at most {LONGEST} bytes",
                    got=f"a longer one at byte {start}",
                )  # fmt: skip
            most *= 4


def _line_of(position: Any, source: Source) -> int:
    line = position.get("line")
    if not isinstance(line, int) or isinstance(line, bool) or line < 1:
        raise unfit_position(position, source, "{'offset': bytes, 'line': number, ...}")
    return line
