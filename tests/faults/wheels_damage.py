"""Ways to damage a saved wheel: bytes that flip, and files that someone wrote with right checksums."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemill.core.checksums import CHECKSUM, checksum

CANARY = "thesis.txt"
"""A file beside the directory, of which nobody may read, write or remove anything."""


def files_of(path: Path) -> list[str]:
    """The files of a wheel or a store, in an order that does not depend on their random names."""
    found = [p for p in path.rglob("*") if p.is_file() and p.stat().st_size]
    return sorted(str(p.relative_to(path)) for p in found)


def outside(work: Path) -> dict[str, bytes]:
    """What lies beside the directory of a wheel."""
    canary = work / CANARY
    if not canary.exists() and not (work / "begun").exists():
        canary.write_bytes(b"three years of work")
        (work / "begun").touch()
    return {p.name: p.read_bytes() for p in work.iterdir() if p.is_file()}


def damage(path: Path, case: dict[str, Any], work: Path) -> None:
    """Do to a directory what a case says."""
    file, how = path / case["file"], case["how"]
    if how in ("flip", "cut", "longer", "zeros", "swap"):
        _bytes(path, file, how, case)
    elif how == "gone":
        file.unlink()
    elif how == "value":
        _set(file, case["at"], case["value"])
    elif how == "number":
        _number(file, case["column"], case["row"], case["value"])
    elif how == "name":
        _other_name(path, file, case, work)
    elif how == "special":
        _special(file, case["value"], work)
    if case.get("sealed"):
        seal(path)


def _bytes(path: Path, file: Path, how: str, case: dict[str, Any]) -> None:
    content = bytearray(file.read_bytes())
    if how == "flip":
        for at, bits in case["flips"]:
            content[at % len(content)] ^= bits
    elif how == "zeros":
        at = case["at"] % len(content)
        content[at : at + case["count"]] = bytes(min(case["count"], len(content) - at))
    elif how == "cut":
        del content[case["at"] % len(content) :]
    elif how == "longer":
        content += random.Random(case["at"]).randbytes(case["count"])
    else:
        content = bytearray((path / case["other"]).read_bytes())
    file.write_bytes(content)


def _manifests(path: Path) -> list[Path]:
    return sorted(path.rglob("manifest-*.json"))


def seal(path: Path) -> None:
    """Write right checksums over what is there, as one who knows how would."""
    for manifest in _manifests(path):
        if manifest.is_symlink() or not manifest.is_file():
            continue
        try:
            facts = json.loads(manifest.read_bytes())
            for said in facts["files"].values():
                file = manifest.parent / said["file"]
                if file.is_file() and not file.is_symlink():
                    content = file.read_bytes()
                    said["bytes"], said["sha256"] = len(content), hashlib.sha256(content).hexdigest()
            facts[CHECKSUM] = checksum(facts)
        except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError):
            continue  # it is beyond that
        manifest.write_text(json.dumps(facts))


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where in a manifest there is a value that could be another."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(p for name, v in inside for p in places(v, (*at, name)))]


def _set(file: Path, at: list[Any], value: Any) -> None:
    facts = json.loads(file.read_bytes())
    target = facts
    for step in at[:-1]:
        target = target[step]
    old = target[at[-1]]
    if isinstance(value, dict) and "add" in value:
        target[at[-1]] = old + value["add"] if isinstance(old, int) else value["add"]
    elif isinstance(value, dict) and "deep" in value:
        for _ in range(value["deep"]):
            old = [old]
        target[at[-1]] = old
    elif value == "drop":
        del target[at[-1]]
    else:
        target[at[-1]] = value
    facts[CHECKSUM] = checksum(facts)
    file.write_text(json.dumps(facts))


def _number(file: Path, column: int, row: int, value: Any) -> None:
    """Another number in an Arrow file, which is written anew."""
    table = pa.ipc.open_file(pa.BufferReader(file.read_bytes())).read_all()
    if not table.num_columns or not table.num_rows:
        return
    column, row = column % table.num_columns, row % table.num_rows
    listed = table.column(column).to_pylist()
    old = listed[row]
    listed[row] = old + value["add"] if isinstance(value, dict) and isinstance(old, int) else value
    try:
        changed = pa.array(listed, table.schema.field(column).type)
    except (pa.ArrowException, OverflowError, TypeError):
        return  # no such number fits there
    table = table.set_column(column, table.schema.field(column), changed)
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _other_name(path: Path, file: Path, case: dict[str, Any], work: Path) -> None:
    """A manifest that names a file which is elsewhere."""
    facts = json.loads(file.read_bytes())
    listed = sorted(facts["files"])
    if not listed:
        return
    said = facts["files"][listed[case["at"] % len(listed)]]
    name = {
        "absolute": str(work / CANARY), "above": f"../{CANARY}", "below": f"x/../../{CANARY}",
        "system": "/etc/passwd", "here": f"./{said['file']}", "other": "manifest.json", "lock": "save.lock",
        "zero": "cells\0.arrow", "long": "c" * 5000, "none": None, "number": 7,
    }[case["value"]]  # fmt: skip
    if case["value"] in ("absolute", "above", "below"):
        shutil.copy(file.parent / said["file"], work / CANARY)  # right in all but its place
    said["file"] = name
    facts[CHECKSUM] = checksum(facts)
    file.write_text(json.dumps(facts))


def _special(file: Path, kind: str, work: Path) -> None:
    """Something else in place of a file."""
    content = file.read_bytes()
    file.unlink()
    if kind == "symlink":
        (work / CANARY).write_bytes(content)
        file.symlink_to(work / CANARY)
    elif kind == "dangling":
        file.symlink_to(work / "nowhere")
    elif kind == "loop":
        file.symlink_to(file)
    elif kind == "fifo":
        os.mkfifo(file)
    elif kind == "directory":
        file.mkdir()
    elif kind == "device":
        file.symlink_to("/dev/zero")
    elif kind == "unreadable":
        file.write_bytes(content)
        file.chmod(0)
