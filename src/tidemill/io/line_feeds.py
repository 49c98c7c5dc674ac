"""Lines that come through a file object, such as stdin, or through a socket."""

from __future__ import annotations

import io
import os
import select
import socket
import stat
from collections.abc import Callable
from typing import Any

from tidemill.core.clock import Clock
from tidemill.core.errors import UserError
from tidemill.core.time import DurationLike
from tidemill.io.chunks import step_of
from tidemill.io.feeds import Arrival, OnceFeed, OpenFeed, arrival_of, count_of, seconds
from tidemill.io.lines import LONGEST, BadLine, LineParser, OnBad, check_text_options
from tidemill.plan.nodes import Source

_BLOCK = 1 << 18


def lines(
    file: Any, format: str = "json", *, resume: str | None = None, on_bad: OnBad | None = None,
    until: Callable[[], bool] | None = None, idle: DurationLike | None = None,
) -> LineFeed:  # fmt: skip
    """Read lines from a file object as they come: `live.read(clicks=tm.lines(sys.stdin.buffer))`.

    `format` is `"json"`, or `"csv"` with a header. The position is the number of lines. After a restore,
    `resume="skip"` says that the same lines come again from the first one, and those before the position are
    skipped; `resume="continue"` says that the next line comes first. A line that is no row is an error; with
    `on_bad` a function gets it, and the others are read.

    >>> import io
    >>> from tidemill.stream import stream
    >>> from tidemill.aggregates.basic import count
    >>> from tidemill.windows.spec import tumbling
    >>> live = stream("s", time="t", schema={"t": "int64"}).window(tumbling(10)).agg(n=count()).live()
    >>> list(live.read(s=lines(io.BytesIO(b'{"t": 3}\\n{"t": 4}\\n'))))
    []
    >>> live.positions, live.flush()["n"].to_pylist()
    ({'s': 2}, [2])
    """
    check_text_options("lines", format, on_bad)
    if not (hasattr(file, "read") or hasattr(file, "buffer")):
        raise UserError("lines", expected="a file object, such as sys.stdin.buffer", got=f"{file!r:.80}")
    return LineFeed(_FileInput(file), "lines", format, on_bad, resume=resume, until=until, idle=idle)


def socket_lines(
    host: str, port: int, format: str = "json", *, resume: str | Callable[[int], bytes] | None = None,
    timeout: DurationLike = "10s", on_bad: OnBad | None = None,
    until: Callable[[], bool] | None = None, idle: DurationLike | None = None,
) -> LineFeed:  # fmt: skip
    """Connect to a TCP server and read the lines that it sends, until it closes the connection.

    As `lines`. If `resume` is a function, it is called with the number of lines that were read, and what it
    returns is sent to the server, which then begins with the next line.
    """
    check_text_options("socket_lines", format, on_bad)
    connection = _SocketInput(host, port, seconds(timeout, "socket_lines timeout="))
    return LineFeed(connection, f"{host}:{port}", format, on_bad, resume=resume, until=until, idle=idle)


class LineFeed(OnceFeed):
    """Lines that come through a file object or a socket."""

    about = "lines"

    def __init__(
        self, data: _FileInput | _SocketInput, place: str, format: str, on_bad: OnBad | None, **more: Any
    ) -> None:
        super().__init__(**more)
        self._data, self._place, self._format, self._on_bad = data, place, format, on_bad
        self.bad_lines = 0
        """How many lines were given to `on_bad`."""

    def __repr__(self) -> str:
        return f"{self.about} from {self._place}"

    def _start(self, source: Source, position: Any, clock: Clock) -> OpenFeed:
        count = count_of(position, source)
        hello = self._resume(count) if callable(self._resume) and position is not None else b""
        self._data.open(source, hello)
        parser = LineParser(source, self._format, self._place, None if self._on_bad is None else self._bad)
        skip = count if self._resume == "skip" else 0
        return _OpenLines(self._data, parser, source, count, skip, clock, self._poll)

    def _bad(self, line: BadLine) -> None:
        assert self._on_bad is not None
        self.bad_lines += 1
        self._on_bad(line)


class _OpenLines(OpenFeed):
    def __init__(
        self, data: _FileInput | _SocketInput, parser: LineParser, source: Source, count: int, skip: int,
        clock: Clock, poll: float,
    ) -> None:  # fmt: skip
        super().__init__(count or None, clock, poll)
        self._data, self._parser, self._source = data, parser, source
        self._count, self._skip, self._offset = count - skip, skip, 0
        self._rest, self._unread = b"", b""
        """Half a line, and whole lines of which one was bad: nothing of them was given."""
        self.file = data.file

    def _look(self) -> Arrival | None:
        if self._unread:
            return self._arrival(self._unread)
        if self.ended:
            return None
        while (got := self._data.read()) is not None:
            self.ended = not got
            whole = self._lines(got)
            if whole and (found := self._arrival(whole)) is not None:
                return found
            if self.ended:
                return None
        return None

    def _lines(self, got: bytes) -> bytes:
        """Return what is whole with these bytes; the last line needs no line break if nothing follows."""
        data = self._rest + got
        end = len(data) if self.ended else data.rfind(b"\n") + 1
        self._rest = data[end:]
        if len(self._rest) > LONGEST:
            raise UserError(
                step_of(self._source), expected=f"lines of at most {LONGEST} bytes",
                got=f"a longer one, line {self._count + 1}",
            )  # fmt: skip
        return data[:end]

    def _arrival(self, data: bytes) -> Arrival | None:
        self._unread = data
        if self._parser.needs_header:
            at, line = 0, b""
            while not line.strip() and at < len(data):
                line = data[at : (data.find(b"\n", at) + 1) or len(data)]
                at += len(line)
            if line.strip():
                self._parser.read_header(line)
            self._passed(data[:at])
            data = data[at:]
        if self._skip:
            lines = data.split(b"\n", self._skip)
            data_after = lines[self._skip] if len(lines) > self._skip else b""
            self._passed(data[: len(data) - len(data_after)])
            data = data_after
        self._unread = data
        if not data:
            return None
        rows = self._parser.rows(data, self._count + 1, self._offset)
        self._unread = b""
        self._passed(data)
        return arrival_of(self._count, rows)

    def _passed(self, data: bytes) -> None:
        lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
        self._count += lines
        self._skip = max(0, self._skip - lines)
        self._offset += len(data)


class _FileInput:
    """Bytes of a file object. `read` returns None if none are there, and nothing at the end."""

    def __init__(self, file: Any) -> None:
        self._file = getattr(file, "buffer", file)
        self.file = _descriptor(self._file)

    def open(self, source: Source, hello: bytes) -> None:
        """It is open."""

    def read(self) -> bytes | None:
        if self.file is not None:
            poll = select.poll()
            poll.register(self.file, select.POLLIN)
            if not poll.poll(0):
                return None
        # One call of the system at most: what is there, not a full buffer.
        read = getattr(self._file, "read1", self._file.read)
        found = read(_BLOCK)
        return found.encode() if isinstance(found, str) else found


def _descriptor(file: Any) -> int | None:
    """Return the descriptor to wait for; None for regular files and memory, which never wait."""
    try:
        found = int(file.fileno())
        waits = not stat.S_ISREG(os.fstat(found).st_mode)
    except (AttributeError, OSError, TypeError, io.UnsupportedOperation):
        return None
    return found if waits else None


class _SocketInput:
    """Bytes of a connection, as `_FileInput`."""

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self._address, self._timeout = (host, port), timeout
        self._socket: socket.socket | None = None
        self._step = "socket_lines"
        self.file: int | None = None

    def open(self, source: Source, hello: bytes) -> None:
        self._step = step_of(source, f"{self._address[0]}:{self._address[1]}")
        try:
            self._socket = socket.create_connection(self._address, self._timeout)
            self._socket.sendall(hello)
        except OSError as failed:
            raise UserError(
                self._step,
                expected="a server that accepts connections",
                got=f"{type(failed).__name__}: {failed}",
            ) from failed
        self._socket.setblocking(False)
        self.file = self._socket.fileno()

    def read(self) -> bytes | None:
        assert self._socket is not None
        try:
            found = self._socket.recv(_BLOCK)
        except BlockingIOError:
            return None
        except OSError as failed:
            raise UserError(
                self._step, f"the connection was lost: {failed}", hint="connect again: tm.socket_lines(...)"
            ) from failed
        if not found:
            self.file = None
            self._socket.close()
        return found
