"""The file of a checkpoint: one Arrow stream with the state of operators, late rows, and a page of JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.files import appearing, read_plain, remove_unfinished
from tidemill.local.operator import Snapshot
from tidemill.local.snapshot import from_bytes, to_bytes

FORMAT = 1
_ABOUT, _STATE, _LATE, _KEYS = "about", "state/", "late/", "keys/"


@dataclass(frozen=True)
class Checkpoint:
    """All that a live query is."""

    about: dict[str, Any]
    """What is not rows, as JSON."""
    state: Snapshot
    late: dict[str, pa.Table]
    """The late rows of each input."""
    keys: dict[str, dict[str, pa.Table]]
    """The watermarks of keys of each input."""


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


def write(path: Path, saved: Checkpoint) -> None:
    """Write a checkpoint. The file appears, or replaces the one before, when all of it is on disk."""
    page = json.dumps({"format": FORMAT, **saved.about})
    tables: Snapshot = {_ABOUT: pa.table({"json": [page]})}
    tables |= {_STATE + name: table for name, table in saved.state.items()}
    tables |= {_LATE + name: table for name, table in saved.late.items()}
    for name, by_columns in saved.keys.items():
        tables |= {f"{_KEYS}{name}/{number}": table for number, table in by_columns.items()}
    if path.parent.is_dir():
        remove_unfinished(path, step="checkpoint")
    with appearing(path, step="checkpoint") as file:
        file.write(memoryview(to_bytes(tables)))


def read(path: Path) -> Checkpoint:
    """Read a checkpoint. What is in the file is checked, and nothing of it is run."""
    try:
        data = read_plain(path, step="restore")
    except FileNotFoundError as none:
        raise UserError("restore", expected=f"a checkpoint at {path}", got="no file") from none
    tables = from_bytes(data)
    page = tables.get(_ABOUT)
    if page is None or page.column_names != ["json"] or page.num_rows != 1:
        raise UserError("restore", expected=f"a checkpoint at {path}", got="another Arrow file")
    about = json.loads(page["json"][0].as_py())
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise UserError(
            "restore", expected=f"a checkpoint of format {FORMAT}", got=f"{str(about)[:80]}",
            hint="it was written by another version of Tidemill",
        )  # fmt: skip
    names = list(about["inputs"])
    keys: dict[str, dict[str, pa.Table]] = {name: {} for name in names}
    for name, table in tables.items():
        if name.startswith(_KEYS):
            stream, number = name[len(_KEYS) :].rsplit("/", 1)
            keys[stream][number] = table
    state = {n[len(_STATE) :]: t for n, t in tables.items() if n.startswith(_STATE)}
    return Checkpoint(about, state, {name: tables[_LATE + name] for name in names}, keys)
