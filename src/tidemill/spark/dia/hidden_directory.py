"""The hidden directory of a write, beside its target, and the removal of those that killed writes left.

It is named `.<target>-<32 hex digits>`, and locked by the process that writes. A lock ends with its process,
so a directory without a lock is a leftover. The next write to the same target removes it, if it has only
files with the names that writes use; anything else is left alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Iterator

from tidemill.core.files import lock, our_errors

_FILE = re.compile(r"whole|part-\d{6,}-\d{6,}(-[0-9a-f]{8})?\.(txt|arrow)")


@contextlib.contextmanager
def hidden_directory(target: str, step: str) -> Iterator[str]:
    """Make a locked directory for the duration of a block. If it fails, new parents are removed, too."""
    above = os.path.dirname(target)
    missing = []
    while not os.path.exists(above):
        missing.append(above)
        above = os.path.dirname(above)
    path, held, done = "", None, False
    try:
        with our_errors(step, target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            # Before it is locked, another write may take it for a leftover and remove it.
            while not os.path.isdir(path):
                path = os.path.join(os.path.dirname(target), f"{_prefix(target)}{uuid.uuid4().hex}")
                os.mkdir(path)
                held = _locked(path)
        yield path
        done = True
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if held is not None:
            os.close(held)
        for folder in [] if done else missing:
            with contextlib.suppress(OSError):  # another process has put something there
                os.rmdir(folder)


def remove_leftovers(target: str) -> None:
    """Remove the hidden directories of killed writes to a target."""
    folder, prefix = os.path.dirname(target), _prefix(target)
    names = os.listdir(folder) if os.path.isdir(folder) else []
    for name in names:
        path = os.path.join(folder, name)
        if not re.fullmatch(r"[0-9a-f]{32}", name.removeprefix(prefix)) or not name.startswith(prefix):
            continue
        held = _locked(path)
        if held is None:
            continue
        try:
            if all(map(_FILE.fullmatch, os.listdir(held))):
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(held)


def _prefix(target: str) -> str:
    return f".{os.path.basename(target)}-"


def _locked(path: str) -> int | None:
    """Lock a directory. Returns None if another process has locked it, if it is gone, or if it is a link."""
    try:
        held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    if lock(held) and _is_still_at(path, held):
        return held
    os.close(held)
    return None


def _is_still_at(path: str, held: int) -> bool:
    """Whether a locked directory is still at its path: it may have been removed before it was locked."""
    try:
        return os.path.samestat(os.fstat(held), os.lstat(path))
    except FileNotFoundError:
        return False
