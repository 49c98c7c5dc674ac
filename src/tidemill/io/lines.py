"""Rows from lines of text that come piece by piece: each line is a row, or a bad line with its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from tidemill.core.batch import conform
from tidemill.core.errors import UserError
from tidemill.io.arrow_checks import require_sound
from tidemill.io.chunks import step_of
from tidemill.io.other_columns import PartlyRead
from tidemill.io.text import csv_header, parse_csv, parse_json
from tidemill.io.text_files import found_delimiter
from tidemill.plan.nodes import Source

FORMATS = ("csv", "json")
LONGEST = 64 << 20
"""The bytes of the longest line. A longer one would fill the memory before anyone saw it."""
_QUOTE = b'"'


@dataclass(frozen=True)
class BadLine:
    """A line that is no row of the stream."""

    place: str
    """The file or connection, the number of the line, and the byte at which it begins."""
    text: bytes
    reason: str


OnBad = Callable[[BadLine], object]


class LineParser:
    """Turns whole lines into rows of a stream.

    In CSV the first line names the columns, unless the stream does. A row is one line: values with line
    breaks in them are bad lines.
    """

    def __init__(self, source: Source, format: str, place: str, on_bad: OnBad | None = None) -> None:
        self._source, self._format, self._place, self._on_bad = source, format, place, on_bad
        if source.text.skip and format == "csv":
            raise UserError(
                step_of(source, place), expected="lines of CSV from the header on",
                got=f"skip={source.text.skip}", hint="cut off what comes before",
            )  # fmt: skip
        named = source.text.columns
        self._columns = None if named is None else list(named)
        self._delimiter = source.text.delimiter

    @property
    def needs_header(self) -> bool:
        return self._format == "csv" and self._columns is None

    def read_header(self, line: bytes) -> None:
        """Take the first line of CSV."""
        step = step_of(self._source, f"{self._place}, line 1")
        try:
            self._columns, self._delimiter = csv_header(line, self._source, step)
        except pa.ArrowException as broken:
            raise UserError(step, f"cannot be read: {broken}") from broken

    def rows(self, data: bytes, line: int, offset: int) -> PartlyRead | None:
        """Return the rows of whole lines, of which the first has a number and begins at a byte of the source.

        Blank lines are skipped. None if there are no rows.
        """
        found = [(batch, good) for batch, good in self._parts(data, line, offset) if batch.num_rows]
        if not found:
            return None
        batch = found[0][0]
        if len(found) > 1:
            batch = pa.Table.from_batches([batch for batch, _ in found]).combine_chunks().to_batches()[0]
        good = b"".join(good for _, good in found)
        return PartlyRead(batch, partial(self._others, good, batch.num_rows))

    def _others(self, good: bytes, rows: int, source: Source) -> pa.Table:
        """Read columns of the lines that are rows; none of them if a file of CSV does not have all."""
        step = step_of(source, self._place)
        if self._format == "json":
            batch = parse_json(good, source, step)
        else:
            assert self._columns is not None and self._delimiter is not None
            if not set(source.schema.names) <= set(self._columns):
                return pa.table({})
            batch = parse_csv(good, self._columns, source, step, self._delimiter)
        if batch.num_rows != rows:
            raise UserError(step, expected=f"{rows} rows", got=f"{batch.num_rows}")
        batch = conform(require_sound(batch, step), source.schema, source.reading, step=step)
        return pa.Table.from_batches([batch])

    def _parts(self, data: bytes, line: int, offset: int) -> Iterator[tuple[pa.RecordBatch, bytes]]:
        """Parse lines all at once or, if one is bad, each half; yield rows with their lines."""
        if self._blank(data):
            return
        if self._format == "csv" and self._delimiter is None:
            self._delimiter = found_delimiter(data)
        step = step_of(self._source, f"{self._place}, line {line} at byte {offset}")
        lines = data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        try:
            yield self._parsed(data, lines, step), data
            return
        except (pa.ArrowException, UserError, ValueError) as failed:
            if len(lines) == 1:
                self._refuse(data, step, failed)
                return
        half = len(lines) // 2
        first = sum(map(len, lines[:half])) + half
        yield from self._parts(data[:first], line, offset)
        yield from self._parts(data[first:], line + half, offset + first)

    def _parsed(self, data: bytes, lines: list[bytes], step: str) -> pa.RecordBatch:
        if self._format == "csv":
            assert self._columns is not None and self._delimiter is not None
            split = self._delimiter.encode()
            if _QUOTE in data and not all(_quotes_close(one, split) for one in lines):
                raise ValueError("a quote that is not closed in its line")
            batch = parse_csv(data, self._columns, self._source, step, self._delimiter)
        else:
            batch = parse_json(data, self._source, step)
        expected = sum(not self._blank(line) for line in lines)
        if batch.num_rows != expected:
            raise ValueError(f"{expected} lines with {batch.num_rows} rows")
        return conform(require_sound(batch, step), self._source.schema, self._source.reading, step=step)

    def _blank(self, data: bytes) -> bool:
        return not (data.strip(b"\r\n") if self._format == "csv" else data.strip())

    def _refuse(self, data: bytes, step: str, failed: Exception) -> None:
        text, reason = data.rstrip(b"\r\n"), str(failed).removeprefix(f"{step}: ")
        if self._on_bad is not None:
            self._on_bad(BadLine(step, text, reason))
            return
        shown = text[:80].decode(errors="replace")
        raise UserError(
            step, f"cannot be read: {shown!r}: {reason}",
            hint="on_bad= takes a function of bad lines, to go on without them",
        ) from failed  # fmt: skip


def _quotes_close(line: bytes, delimiter: bytes) -> bool:
    """Return whether a line of CSV does not end within quotes. Quotes inside of a value do not count."""
    at = 0
    while True:
        if line.startswith(_QUOTE, at):
            at = line.find(_QUOTE, at + 1)
            while at >= 0 and line.startswith(_QUOTE, at + 1):  # "" stands for a quote
                at = line.find(_QUOTE, at + 2)
            if at < 0:
                return False
        at = line.find(delimiter, at)
        if at < 0:
            return True
        at += 1


def check_text_options(step: str, format: str | None, on_bad: OnBad | None) -> None:
    """Raise an error unless these are options of a feed of text."""
    if format not in FORMATS:
        raise UserError(step, expected=f"format= one of {FORMATS}", got=repr(format))
    if on_bad is not None and not callable(on_bad):
        raise UserError(step, expected="on_bad= a function of a BadLine", got=f"{on_bad!r:.80}")
