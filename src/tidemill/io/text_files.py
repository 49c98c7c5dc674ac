"""Open text files: unpack them, and find what separates the fields of CSV."""

from __future__ import annotations

import csv as fields
import lzma
import zipfile
from collections.abc import Iterable
from typing import IO, Any

import pyarrow as pa

from tidemill.core.text_form import DELIMITERS, PLAIN_TEXT, UTF8, TextForm
from tidemill.io.stored_files import StoredFile

SAMPLE = 64 << 10
"""The bytes that are looked at to find the delimiter."""


def open_text(path: StoredFile, encoding: str = UTF8) -> Any:
    """Open a file, packed or not, for reading of bytes; text in another encoding becomes UTF-8."""
    opened = _unpacked(path)
    return opened if encoding == UTF8 else pa.transcoding_input_stream(opened, encoding, UTF8)


def _unpacked(path: StoredFile) -> pa.NativeFile:
    ending = path.endings[-1] if path.endings else ""
    if ending == ".xz":
        return pa.PythonFile(lzma.open(path.open()), mode="r")
    if ending == ".zip":
        return pa.PythonFile(_only_member(path), mode="r")
    return pa.input_stream(path.path) if path.system is None else path.system.open_input_stream(path.path)


def _only_member(path: StoredFile) -> IO[bytes]:
    packed = zipfile.ZipFile(path.path if path.system is None else path.open())
    names = [one.filename for one in packed.infolist() if not one.is_dir()]
    if len(names) != 1:
        raise ValueError(f"one file inside was expected, got {len(names)}: {names[:5]}")
    return packed.open(names[0])


def is_blank(path: StoredFile) -> bool:
    """Return whether a file has nothing but white space."""
    with open_text(path) as stream:
        while block := stream.read(1 << 16):
            if block.strip():
                return False
    return True


def delimiter_of(path: StoredFile, form: TextForm, needed: Iterable[str] = ()) -> str:
    """Return what separates the fields of a file of CSV: what is said, or what is found."""
    if form.delimiter is not None:
        return form.delimiter
    if {".tsv", ".tab"} & {*path.endings}:
        return "\t"
    with open_text(path, form.encoding) as stream:
        return found_delimiter(stream.read(SAMPLE), needed, form)


def found_delimiter(start: bytes, needed: Iterable[str] = (), form: TextForm = PLAIN_TEXT) -> str:
    r"""Return the delimiter that splits the first lines of a file into the same number of fields, and most.

    If columns are needed, it is one by which the header has them, or by which there are as many as `columns`.

    >>> found_delimiter(b"day;price\n1.1.2026;3,5\n2.1.2026;4,5\n"), found_delimiter(b"one column\n1\n")
    (';', ',')
    """
    lines = [
        line
        for line in start.decode(errors="replace").lstrip("\ufeff").splitlines()[form.skip :]
        if line.strip()
    ][:10]
    if len(start) == SAMPLE and len(lines) > 1:
        lines.pop()  # it may be cut off
    wanted = set(needed)
    best, most = ",", 1
    for one in DELIMITERS:
        rows = list(fields.reader(lines, delimiter=one))
        counts = {len(row) for row in rows}
        if form.columns is not None:
            if counts == {len(form.columns)}:
                return one
        elif wanted and rows and wanted <= set(rows[0]):
            return one
        if len(counts) == 1 and (count := counts.pop()) > most:
            best, most = one, count
    return best
