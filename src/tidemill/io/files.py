"""Open a path as a source: a file, a directory or a glob. The suffix of a file selects its format."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tidemill.core.batch import check_schema
from tidemill.core.errors import UserError
from tidemill.io.chunks import (
    ChunkSizes,
    RawChunk,
    Reader,
    read_ahead,
    readable,
    readable_at,
    step_of,
)
from tidemill.io.parquet import open_parquet, with_keys
from tidemill.io.stored_files import StoredFile, find_files
from tidemill.io.text import csv_columns, found_json, read_csv, read_json
from tidemill.io.text_columns import typed
from tidemill.io.text_files import delimiter_of, is_blank
from tidemill.plan.nodes import Source

KINDS = {
    ".parquet": "Parquet", ".pq": "Parquet",
    ".csv": "CSV", ".tsv": "CSV", ".tab": "CSV", ".txt": "CSV",
    ".jsonl": "JSON lines", ".ndjson": "JSON lines", ".json": "JSON lines",
    ".arrow": "Arrow", ".arrows": "Arrow", ".feather": "Arrow", ".ipc": "Arrow",
}  # fmt: skip
_PACKED = {".gz", ".bz2", ".zst", ".xz", ".zip"}
_TEXT = {"CSV", "JSON lines"}
_SMALL = 8 << 20
"""Files with no more bytes than this may have few rows."""


@dataclass(frozen=True)
class Part:
    """A file of a format, or one row group of it, to be read alone."""

    file: StoredFile
    kind: str
    group: int | None = None


def open_path(
    path: str | os.PathLike[str], source: Source, sizes: ChunkSizes, system: Any = None
) -> Reader:
    """Open the files at a path in the order of their names; all must have one format.

    `system` is a file system of Arrow's, if the path is not on the local disk and no URI.
    """
    files, kind = files_at(os.fspath(path), step_of(source), system)
    return _opened(files, kind, source, sizes)


def open_part(part: Part, source: Source, sizes: ChunkSizes) -> Reader:
    """Open one file, or a row group."""
    return _opened([part.file], part.kind, source, sizes, part.group)


def _opened(
    files: Sequence[StoredFile], kind: str, source: Source, sizes: ChunkSizes, group: int | None = None
) -> Reader:
    about = described(files, kind)
    if kind == "Parquet":
        keys = [lambda names, file=file: _keys(file, names, source) for file in files]
        return open_parquet(files, keys, source, about, sizes, group)
    if kind == "Arrow":
        _check_ipc(files, source)
    read: Callable[[StoredFile, Source], Iterator[RawChunk]]
    read = {"CSV": read_csv, "JSON lines": read_json, "Arrow": _read_ipc}[kind]

    def raw_chunks() -> Iterator[RawChunk]:
        for file in files:
            keys = _keys(file, _columns_in(file, kind, source), source)
            if not keys:
                yield from read(file, source)
                continue
            inner = tuple(name for name in source.schema.names if name not in keys)
            if not inner:
                raise UserError(
                    step_of(source, f"file {file}"), expected="a query that reads a column of the file",
                    got=f"one that reads its directories only: {list(keys)}",
                )  # fmt: skip
            for raw in read(file, replace(source, columns=inner)):
                yield RawChunk(with_keys(raw.batch, keys), raw.place, raw.promise)

    if sum(file.size for file in files) > _SMALL:
        return Reader(source, about, raw_chunks, sizes=sizes)
    return Reader(source, about, *read_ahead(raw_chunks, sizes.ahead), sizes=sizes)


def _columns_in(file: StoredFile, kind: str, source: Source) -> Sequence[str]:
    """Return the columns that a file itself has, if its directories give some that are needed."""
    if not any(name in source.schema for name in file.keys):
        return ()
    with readable(source, f"file {file}"):
        if kind == "CSV":
            if is_blank(file):
                return ()
            return csv_columns(file, delimiter_of(file, source.text), source.text)
        if kind == "JSON lines":
            return found_json(file).names  # type: ignore[no-any-return]
        with file.open() as opened:
            return _open_ipc(opened, pa.ipc.IpcReadOptions()).schema.names  # type: ignore[no-any-return]


def _keys(file: StoredFile, inside: Sequence[str], source: Source) -> dict[str, pa.Scalar]:
    """Return the needed columns that the directories of a file give, in their types, unless it has them."""
    found = {}
    for name, text in file.keys.items():
        if name in source.schema and name not in inside:
            kind, step = source.schema[name], step_of(source, f"file {file}")
            found[name] = typed(pa.array([text], pa.string()), name, kind, source, step, 1)[0]
    return found


def described(files: Sequence[StoredFile], kind: str) -> str:
    """Return what files are, in a few words."""
    return f"{kind} file {files[0]}" if len(files) == 1 else f"{len(files)} {kind} files"


def files_at(path: str, step: str, system: Any = None) -> tuple[list[StoredFile], str]:
    """Return the files at a path in the order of their names, and their one format."""
    with readable_at(f"{step}, path {path}"):
        files = find_files(path, system, step)
    kinds = {_kind(file, step) for file in files}
    if len(kinds) > 1:
        raise UserError(
            step, expected=f"files of one kind at {path!r}", got=", ".join(sorted(kinds)),
            hint="use a glob such as 'folder/*.parquet'",
        )  # fmt: skip
    return files, kinds.pop()


_FRAMES = {
    ending: f"read it as a frame: tm.read({call}, time=...)"
    for ending, call in {
        ".xlsx": "pandas.read_excel(path)", ".xls": "pandas.read_excel(path)",
        ".ods": "pandas.read_excel(path)", ".xml": "pandas.read_xml(path)",
        ".orc": "pyarrow.orc.read_table(path)", ".avro": "polars.read_avro(path)",
        ".pkl": "pandas.read_pickle(path)", ".h5": "pandas.read_hdf(path)",
        ".dta": "pandas.read_stata(path)", ".sav": "pandas.read_spss(path)",
        ".dat": "pandas.read_csv(path, sep=r'\\s+')", ".fwf": "pandas.read_fwf(path)",
    }.items()
}  # fmt: skip
"""What reads files of other formats."""


def _kind(path: StoredFile, step: str) -> str:
    endings = path.endings
    if endings and endings[-1] in _PACKED:
        kind = KINDS.get(endings[-2], "") if len(endings) > 1 else ""
        kind = kind if kind in _TEXT else ""
    else:
        kind = KINDS.get(endings[-1], "") if endings else ""
    if not kind:
        raise UserError(
            step, expected=f"a file that ends in one of {', '.join(KINDS)}", got=str(path),
            hint=_FRAMES.get(endings[-1] if endings else "") or
            "a glob such as '*.parquet' leaves others out; or open it with pyarrow and give its reader",
        )  # fmt: skip
    return kind


def _check_ipc(files: Sequence[StoredFile], source: Source) -> None:
    for path in files:
        place = f"file {path}"
        with readable(source, place), path.open() as mapped:
            found = _open_ipc(mapped, pa.ipc.IpcReadOptions()).schema
            check_schema(found, source.schema, source.reading, step=step_of(source, place))


def _read_ipc(path: StoredFile, source: Source) -> Iterator[RawChunk]:
    place = f"file {path}"
    # Not memory-mapped: if the file were truncated while it is read, the system would kill the process.
    with readable(source, place), path.open() as mapped:
        found = _open_ipc(mapped, pa.ipc.IpcReadOptions()).schema
        fields = [found.get_field_index(name) for name in source.schema.names]
        reader = _open_ipc(mapped, pa.ipc.IpcReadOptions(included_fields=fields))
        if isinstance(reader, pa.ipc.RecordBatchFileReader):
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            batches = iter(reader)
        for batch in batches:
            yield RawChunk(batch, place)


def _open_ipc(
    mapped: pa.NativeFile, options: pa.ipc.IpcReadOptions
) -> pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader:
    """Open a file in the Arrow IPC file format or, if that fails, the stream format."""
    mapped.seek(0)
    try:
        return pa.ipc.open_file(mapped, options=options)
    except pa.ArrowInvalid:
        mapped.seek(0)
        return pa.ipc.open_stream(mapped, options=options)
