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
import warnings
from collections.abc import Iterator
from pathlib import Path

from tidemill.core.errors import UserError
from tidemill.core.files import becomes, is_plain, lock, open_plain, our_errors

LOCK = "save.lock"
"""Who has it may number a save, make a claim, and remove what is not needed any more."""
LAST_SAVE = 999_999_999
"""There is no number after it."""
_NUMBER = "(?!000000)[0-9]{6}|[1-9][0-9]{6,8}"
"""Numbers of saves, each in one way only: from 000001 to `LAST_SAVE`."""
DATA = re.compile(rf"[a-z]+[0-9]*-((?:{_NUMBER})-[0-9a-f]{{8}})\.arrow")
"""What files of a save are called: what is in them, and the claim."""
MANIFEST = re.compile(rf"manifest(?:-({_NUMBER}))?\.json")
_CLAIM = re.compile(rf"\.((?:{_NUMBER})-[0-9a-f]{{8}})\.saving")


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
    """Refuse to make a save after the last one that has a number."""
    if number > LAST_SAVE:
        raise UserError(
            step, expected=f"saves up to {LAST_SAVE} in {path}", got=f"save {number - 1} there already",
            hint="name another directory; or remove that manifest, if it is not one of yours",
        )  # fmt: skip


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
        hidden = becomes(name) != name
        data = DATA.fullmatch(becomes(name))
        claim = _CLAIM.fullmatch(name)
        if data:
            unused = used is not None and name not in used
            left = data[1] not in alive and (hidden or unused)
        elif claim:
            left = claim[1] not in alive
        else:  # a manifest is written by who has the lock: nobody now
            left = hidden and MANIFEST.fullmatch(becomes(name)) is not None
        if left and is_plain(path / name):
            (path / name).unlink(missing_ok=True)


@contextlib.contextmanager
def tidying(path: Path) -> Iterator[None]:
    """Leftovers are removed: that it fails is a warning, and no error of what was done before.

    The next save removes them.
    """
    try:
        yield
    except UserError as failed:
        warnings.warn(f"files that are not needed stay in {path}: {failed}", RuntimeWarning, stacklevel=2)


def names_in(path: Path) -> list[str]:
    """What is in a directory; nothing, if there is none."""
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
