"""Track which processes are saving into a directory, and remove the files that killed ones left.

A save takes a *claim*: a name that is part of all its file names, and a file `.<claim>.saving` that is locked
as long as its process lives; the system releases the lock when it dies. So a file that no manifest names
belongs to a running save if the claim in its name is locked, and is a leftover otherwise. The lock of the
directory is held while claims are made and while leftovers are removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import warnings
from collections.abc import Iterator
from pathlib import Path

from tidemill.core.errors import UserError
from tidemill.core.files import becomes, is_plain, lock, open_plain, our_errors

LOCK = "save.lock"
"""The lock file. Its holder may number a save, make a claim, and remove unneeded files."""
LAST_SAVE = 999_999_999
"""The greatest number of a save."""
_NUMBER = "(?!000000)[0-9]{6}|[1-9][0-9]{6,8}"
"""Numbers of saves, in canonical form: from 000001 to `LAST_SAVE`."""
DATA = re.compile(rf"[a-z]+[0-9]*-((?:{_NUMBER})-[0-9a-f]{{8}})\.arrow")
"""The names of data files: their contents, and the claim."""
MANIFEST = re.compile(rf"manifest(?:-({_NUMBER}))?\.json")
_CLAIM = re.compile(rf"\.((?:{_NUMBER})-[0-9a-f]{{8}})\.saving")


@contextlib.contextmanager
def locked(path: Path, step: str = "save wheel") -> Iterator[None]:
    """Hold the lock of a directory; other processes wait."""
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
    """Hold a claim for this process. The number is only informative."""
    require_number(path, number, step)
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


def require_number(path: Path, number: int, step: str) -> None:
    """Raise if the number of a save exceeds `LAST_SAVE`."""
    if number > LAST_SAVE:
        raise UserError(
            step, expected=f"saves up to {LAST_SAVE} in {path}", got=f"save {number - 1} there already",
            hint="use another directory; or remove that manifest, if it is not yours",
        )  # fmt: skip


def is_running(path: Path, claim: str) -> bool:
    """Whether the process that made a claim still holds it."""
    try:
        handle = open_plain(path / f".{claim}.saving", os.O_RDWR, step="save wheel")
    except (FileNotFoundError, UserError):  # missing, or not a plain file
        return False
    try:
        return not lock(handle)
    finally:
        os.close(handle)


def running(path: Path) -> set[str]:
    """The claims in a directory whose processes are alive."""
    found = (_CLAIM.fullmatch(name) for name in names_in(path))
    return {f[1] for f in found if f and is_running(path, f[1])}


def remove_leftovers(path: Path, used: set[str] | None) -> None:
    """Remove the files of killed saves, except those in `used`. The caller holds the lock.

    `used` is None if a manifest cannot be read; then all complete files stay.
    """
    alive = running(path)
    for name in names_in(path):
        hidden = becomes(name) != name
        data = DATA.fullmatch(becomes(name))
        claim = _CLAIM.fullmatch(name)
        if data:
            unused = used is not None and name not in used
            left = data[1] not in alive and (hidden or unused)
        elif claim:
            left = claim[1] not in alive
        else:  # only the holder of the lock writes manifests, so a hidden one is a leftover
            left = hidden and MANIFEST.fullmatch(becomes(name)) is not None
        if left and is_plain(path / name):
            (path / name).unlink(missing_ok=True)


@contextlib.contextmanager
def tidying(path: Path) -> Iterator[None]:
    """Turn an error while leftovers are removed into a warning, because the save itself succeeded.

    The next save removes them.
    """
    try:
        yield
    except UserError as failed:
        warnings.warn(f"files that are not needed stay in {path}: {failed}", RuntimeWarning, stacklevel=2)


def names_in(path: Path) -> list[str]:
    """The names in a directory; an empty list if it does not exist."""
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
