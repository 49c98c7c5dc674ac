"""Who is writing into a directory of saves, and what those who were killed have left there.

A save takes a *claim*: a name that all its files carry, and a file `.<claim>.saving` that is locked as long
as its process lives; the system gives the lock back when it dies. So a file that no manifest names belongs
to a save that is being written if the claim in its name is locked, and to nobody otherwise. The lock of
the directory is held while claims are made and while leftovers are looked for.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from tidemill.core.errors import UserError
from tidemill.core.files import is_plain, lock, open_plain, our_errors

LOCK = "save.lock"
"""Who has it may number a save, make a claim, and remove what is not needed any more."""
DATA = re.compile(r"[a-z]+\d*-(\d{6,9}-[0-9a-f]{8})\.arrow")
"""What files of a save are called: what is in them, and the claim."""
MANIFEST = re.compile(r"manifest(?:-(\d{6,9}))?\.json")
_CLAIM = re.compile(r"\.(\d{6,9}-[0-9a-f]{8})\.saving")
_UNFINISHED = re.compile(r"\.(.+)\.[0-9a-f]{12}\.tmp")
"""What `core.files.appearing` calls a file that is being written."""


@contextlib.contextmanager
def locked(path: Path, step: str = "save wheel") -> Iterator[None]:
    """Have the lock of a directory; others wait."""
    with our_errors(step, path / LOCK):
        handle = open_plain(path / LOCK, os.O_RDWR | os.O_CREAT, step=step)
    try:
        with our_errors(step, path / LOCK):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def claimed(path: Path, number: int, step: str = "save wheel") -> Iterator[str]:
    """A claim of this process, as long as it has it. The number is only for people to see."""
    claim = f"{number:06}-{secrets.token_hex(4)}"
    file = path / f".{claim}.saving"
    with locked(path, step), our_errors(step, file):
        handle = open_plain(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, step=step)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield claim
    finally:
        file.unlink(missing_ok=True)
        os.close(handle)


def is_running(path: Path, claim: str) -> bool:
    """Whether the process that made a claim has it still."""
    try:
        handle = open_plain(path / f".{claim}.saving", os.O_RDWR, step="save wheel")
    except (FileNotFoundError, UserError):  # none, or not one of ours
        return False
    try:
        return not lock(handle)
    finally:
        os.close(handle)


def running(path: Path) -> set[str]:
    """The claims of a directory whose processes live."""
    found = (_CLAIM.fullmatch(name) for name in names_in(path))
    return {f[1] for f in found if f and is_running(path, f[1])}


def remove_leftovers(path: Path, used: set[str] | None) -> None:
    """Remove what killed saves have left; who calls has the lock. Files that are `used` stay.

    Where it is not known what is used, because a manifest cannot be read, complete files stay too.
    """
    alive = running(path)
    for name in names_in(path):
        hidden = _UNFINISHED.fullmatch(name)
        data = DATA.fullmatch(hidden[1] if hidden else name)
        claim = _CLAIM.fullmatch(name)
        if data:
            unused = used is not None and name not in used
            left = data[1] not in alive and (hidden is not None or unused)
        elif claim:
            left = claim[1] not in alive
        else:  # a manifest is written by who has the lock: nobody now
            left = hidden is not None and MANIFEST.fullmatch(hidden[1]) is not None
        if left and is_plain(path / name):
            (path / name).unlink(missing_ok=True)


def names_in(path: Path) -> list[str]:
    """What is in a directory; nothing, if there is none."""
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
