"""What a checkpoint of a live query has, as tables and a page of JSON; and a checkpoint that is one file.

The file is an Arrow stream with all tables, of which one is the page, and a checksum of the stream.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.files import appearing, read_plain, remove_unfinished
from tidemill.local.changes import more_of
from tidemill.local.operator import Snapshot
from tidemill.local.snapshot import from_bytes, to_bytes

FORMAT = 2
_ABOUT, _STATE, _LATE, _KEYS = "about", "state/", "late/", "keys/"
_ROWS = "/rows"
_DIGEST = hashlib.sha256().digest_size


@dataclass(frozen=True)
class Checkpoint:
    """All that a live query is, or what of it changed."""

    about: dict[str, Any]
    """What is not rows, as JSON."""
    state: Snapshot
    late: dict[str, pa.Table]
    """The late rows of each input."""
    keys: dict[str, dict[str, pa.Table]]
    """The watermarks of keys of each input."""
    more_late: Collection[str] = ()
    """The inputs whose late rows follow those that were saved before."""

    def tables(self) -> Snapshot:
        """Return all tables, by names that tell what they are."""
        found = {_STATE + name: table for name, table in self.state.items()}
        for name, rows in self.late.items():
            own = f"{_LATE}{name}{_ROWS}"
            found[more_of(own) if name in self.more_late else own] = rows
        for name, by_columns in self.keys.items():
            found |= {f"{_KEYS}{name}/{number}": table for number, table in by_columns.items()}
        return found

    @staticmethod
    def of(about: dict[str, Any], tables: Mapping[str, pa.Table]) -> Checkpoint:
        """Return the checkpoint of all tables that `tables` gave."""
        names = list(about["inputs"])
        keys: dict[str, dict[str, pa.Table]] = {name: {} for name in names}
        for name, table in tables.items():
            if name.startswith(_KEYS):
                stream, number = name[len(_KEYS) :].rsplit("/", 1)
                keys[stream][number] = table
        state = {n[len(_STATE) :]: t for n, t in tables.items() if n.startswith(_STATE)}
        late = {name: tables[f"{_LATE}{name}{_ROWS}"] for name in names}
        return Checkpoint(about, state, late, keys)


def require_json(value: Any) -> None:
    """Raise an error unless a value can be written as JSON and read again."""
    try:
        same = json.loads(json.dumps(value)) == value
    except (TypeError, ValueError):
        same = False
    if not same:
        raise UserError(
            "push", expected="a position of numbers, text, lists and dicts", got=f"{value!r:.80}",
            hint="a checkpoint writes it as JSON",
        )  # fmt: skip


def write(path: Path, saved: Checkpoint) -> int:
    """Write a checkpoint. The file appears, or replaces the one before, when all of it is on disk.

    Return how many bytes it has.
    """
    page = json.dumps({"format": FORMAT, **saved.about})
    if path.parent.is_dir():
        remove_unfinished(path, step="checkpoint")
    data = memoryview(to_bytes({_ABOUT: pa.table({"json": [page]}), **saved.tables()}))
    with appearing(path, step="checkpoint") as file:
        file.write(data)
        file.write(hashlib.sha256(data).digest())
    return len(data) + _DIGEST


def read(path: Path) -> Checkpoint:
    """Read a checkpoint. What is in the file is checked, and nothing of it is run."""
    try:
        data = memoryview(read_plain(path, step="restore"))
    except FileNotFoundError as none:
        raise UserError("restore", expected=f"a checkpoint at {path}", got="no file") from none
    content, digest = data[:-_DIGEST], data[-_DIGEST:]
    if hashlib.sha256(content).digest() != digest:
        raise UserError("restore", expected=f"a checkpoint at {path}", got="a damaged file, or another one")
    tables = from_bytes(pa.py_buffer(content))
    page = tables.pop(_ABOUT, None)
    if page is None or page.column_names != ["json"] or page.num_rows != 1:
        raise UserError("restore", expected=f"a checkpoint at {path}", got="another Arrow file")
    about = json.loads(page["json"][0].as_py())
    require_format(about, FORMAT)
    return Checkpoint.of(about, tables)


def require_format(about: Any, wanted: int) -> None:
    """Raise an error if a page was written by another version."""
    if not isinstance(about, dict) or about.get("format") != wanted:
        raise UserError(
            "restore", expected=f"a checkpoint of format {wanted}", got=f"{str(about)[:80]}",
            hint="it was written by another version of Tidemill",
        )  # fmt: skip
