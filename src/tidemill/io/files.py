"""Open a path as a source: a file, a directory or a glob. The suffix of a file selects its format."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

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
from tidemill.io.parquet import open_parquet
from tidemill.io.text import read_csv, read_json
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


def open_path(path: str | os.PathLike[str], source: Source, sizes: ChunkSizes) -> Reader:
    """Open the files at a path in the order of their names; all must have one format."""
    files, kind = files_at(os.fspath(path), step_of(source))
    about = described(files, kind)
    if kind == "Parquet":
        return open_parquet(files, source, about, sizes)
    if kind == "Arrow":
        _check_ipc(files, source)
    read: Callable[[Path, Source], Iterator[RawChunk]]
    read = {"CSV": read_csv, "JSON lines": read_json, "Arrow": _read_ipc}[kind]

    def raw() -> Iterator[RawChunk]:
        return (chunk for file in files for chunk in read(file, source))

    if sum(file.stat().st_size for file in files) > _SMALL:
        return Reader(source, about, raw, sizes=sizes)
    return Reader(source, about, *read_ahead(raw, sizes.ahead), sizes=sizes)


def described(files: Sequence[Path], kind: str) -> str:
    """Return what files are, in a few words."""
    return f"{kind} file {files[0]}" if len(files) == 1 else f"{len(files)} {kind} files"


def files_at(path: str, step: str) -> tuple[list[Path], str]:
    """Return the files at a path in the order of their names, and their one format."""
    files = _found(path, step)
    kinds = {_kind(file, step) for file in files}
    if len(kinds) > 1:
        raise UserError(
            step, expected=f"files of one kind at {path!r}", got=", ".join(sorted(kinds)),
            hint="use a glob such as 'folder/*.parquet'",
        )  # fmt: skip
    return files, kinds.pop()


def _found(pattern: str, step: str) -> list[Path]:
    if os.path.isfile(pattern):
        return [Path(pattern)]
    files: set[Path] = set()
    with readable_at(f"{step}, path {pattern}"):
        there = os.path.lexists(pattern)
        for match in map(Path, [pattern] if there else glob.glob(pattern, recursive=True)):
            files.update(_inside(match) if match.is_dir() else [match])
        for file in files:
            _check_plain(file, step)
    if not files:
        raise UserError(
            step, expected="a file, a directory with files, or a glob that matches",
            got=f"nothing at {pattern!r}", hint=f"the working directory is {os.getcwd()}",
        )  # fmt: skip
    return sorted(files)


def _check_plain(file: Path, step: str) -> None:
    """Reject pipes, sockets and devices: reading a pipe might never end."""
    if not stat.S_ISREG(os.stat(file).st_mode):
        raise UserError(
            step, expected=f"a file at {file}", got="a pipe, a socket or a device",
            hint="open it yourself, and give a reader: pyarrow.ipc.open_stream(...)",
        )  # fmt: skip


def _inside(folder: Path) -> Iterator[Path]:
    """Yield the files in a directory and below, except those whose names start with _ or a dot.

    A directory that cannot be listed is an error, because its rows would be missing.
    """
    for path, inner, files in os.walk(folder, onerror=_raise):
        inner[:] = sorted(name for name in inner if not name.startswith(("_", ".")))
        for name in files:
            if not name.startswith(("_", ".")) and (found := Path(path, name)).is_file():
                yield found


def _raise(failed: OSError) -> None:
    raise failed


def _kind(path: Path, step: str) -> str:
    endings = [ending.lower() for ending in path.suffixes]
    if endings and endings[-1] in _PACKED:
        kind = KINDS.get(endings[-2], "") if len(endings) > 1 else ""
        kind = kind if kind in _TEXT else ""
    else:
        kind = KINDS.get(endings[-1], "") if endings else ""
    if not kind:
        raise UserError(
            step, expected=f"a file that ends in one of {', '.join(KINDS)}", got=str(path),
            hint="a glob such as '*.parquet' leaves others out; or open it with pyarrow and give its reader",
        )  # fmt: skip
    return kind


def _check_ipc(files: Sequence[Path], source: Source) -> None:
    for path in files:
        place = f"file {path}"
        with readable(source, place), pa.OSFile(str(path)) as mapped:
            found = _open_ipc(mapped, pa.ipc.IpcReadOptions()).schema
            check_schema(found, source.schema, source.reading, step=step_of(source, place))


def _read_ipc(path: Path, source: Source) -> Iterator[RawChunk]:
    place = f"file {path}"
    # Not memory-mapped: if the file were truncated while it is read, the system would kill the process.
    with readable(source, place), pa.OSFile(str(path)) as mapped:
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
