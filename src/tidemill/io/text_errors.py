"""Errors of CSV files that cannot be read, with the option that would read them."""

from __future__ import annotations

import codecs
import csv as fields
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from tidemill.core.text_form import DELIMITERS, UTF8, TextForm
from tidemill.io.stored_files import StoredFile
from tidemill.io.text_files import SAMPLE, delimiter_of, open_text

_ROW = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+): ?(.*)", re.DOTALL)


@contextmanager
def with_options(path: StoredFile, form: TextForm) -> Iterator[None]:
    """Add to an error of Arrow's what to do about it."""
    try:
        yield
    except pa.ArrowInvalid as broken:
        if option := _option(str(broken), path, form):
            raise pa.ArrowInvalid(f"{broken} — {option}") from broken
        raise
    except OSError as broken:
        if "inflate" in str(broken) or "zstd" in str(broken).lower():
            raise OSError(f"{broken} — is it packed? Its name should end as what it is") from broken
        if "Truncated" in str(broken):
            raise OSError(f"{broken} — the file is not whole: get it again") from broken
        raise


def _option(said: str, path: StoredFile, form: TextForm) -> str:
    if form.encoding == UTF8 and _start(path, 2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "encoding='utf-16' reads it"
    if "UTF8" in said:
        return "encoding='latin-1', or another, reads other text than UTF-8"
    if found := _ROW.search(said):
        return _of_row(int(found[2]), int(found[3]), found[4], path, form)
    return ""


def _of_row(wanted: int, got: int, text: str, path: StoredFile, form: TextForm) -> str:
    """Return what to do about a row that has another number of fields than the header."""
    delimiter = delimiter_of(path, form)
    rows = _fields(path, delimiter, form)
    names, skip = list(form.columns or rows[0]), form.skip + (form.columns is None)
    if got == wanted + 1 and text.rstrip().endswith(delimiter):
        return f"rows end with {delimiter!r}: columns={[*names, 'rest']} and skip={skip} name what follows it"
    if got == wanted - 1 and names[-1] == "":
        return f"the header ends with {delimiter!r}, and rows do not: columns={names[:-1]} and skip={skip}"
    if got < wanted:
        return "complete the row, or cut it off if it is no data"
    at = next((at for at, row in enumerate(rows[:100]) if len(row) == got), 0)
    alike = len(rows) > at + 1 and all(len(row) == got for row in rows[at : at + 5])
    if at and form.columns is None and (wanted == 1 or alike):
        skip = form.skip + at
        return f"skip={skip} if {rows[at][:4]} is the header; otherwise delimiter= says what separates fields"
    return f"fields that contain {delimiter!r} go in quotes, and delimiter= says what separates them"


def _fields(path: StoredFile, delimiter: str, form: TextForm) -> list[list[str]]:
    text = _start(path, SAMPLE, form.encoding).decode(errors="replace").lstrip("\ufeff")
    return list(fields.reader(text.splitlines()[form.skip :], delimiter=delimiter))


def _start(path: StoredFile, size: int, encoding: str = UTF8) -> bytes:
    with open_text(path, encoding) as file:
        return bytes(file.read(size))


def skip_to(column: str, path: StoredFile, form: TextForm) -> int | None:
    """Return how many lines come before the one that names a column, if it is not the first."""
    marks = DELIMITERS if form.delimiter is None else (form.delimiter,)
    for rows in (_fields(path, mark, form)[:100] for mark in marks):
        if at := next((at for at, row in enumerate(rows) if column in [one.strip() for one in row]), 0):
            return form.skip + at
    return None
