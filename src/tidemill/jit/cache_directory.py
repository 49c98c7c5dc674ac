"""The directory of compiled kernels, and the check that nobody else can write to it: its files are executed.

Only the user has access to the directory (0700); in a directory named by `TIDEMILL_CACHE`, this holds for the
subdirectory made there. Nobody else may be able to replace a directory on the path: each one must belong to
the user or to root and be writable by nobody else, unless it is sticky like /tmp. Symlinks are followed if
the same holds for their location and their target. If the check fails, a warning is given, and a temporary
directory is used and removed at exit.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import stat
import tempfile
import warnings
from pathlib import Path

from tidemill.core.errors import UserError
from tidemill.core.files import lock, open_plain

_PREFIX = "tidemill-kernels-"
_LOCK = "owner.lock"
_MOST_LINKS = 40
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_found: Path | None = None
_made: dict[Path, tuple[int, int]] = {}
"""Temporary directories, each with the process that made it and the descriptor of its lock."""


def cache_directory() -> Path:
    """Return the directory of kernels: `machine` in `TIDEMILL_CACHE` or in the user's cache directory."""
    global _found
    if _found is None or not os.path.isdir(_found):  # a parent process removes its own at exit
        _found = _kept() or _temporary()
    return _found


def _kept() -> Path | None:
    """Return the permanent directory, created if needed; None if it cannot be written or trusted."""
    given = os.environ.get("TIDEMILL_CACHE")
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # the user has no home directory
        home = Path("/nonexistent")
    root = Path(given or home / "tidemill" / "kernels").absolute()
    path = root / "machine"
    try:
        for directory in (root, path):  # nothing is created in an untrusted directory
            _make(directory)
            if why := distrust(directory):
                warnings.warn(
                    f"compiled kernels are not cached in {directory}: {why}; chmod it, or set TIDEMILL_CACHE "
                    "to a directory that only you can write",
                    RuntimeWarning, stacklevel=2,
                )  # fmt: skip
                return None
        # Others may use the rest of a directory that `TIDEMILL_CACHE` names.
        for directory in (path,) if given else (root.parent, root, path):
            _have_alone(directory)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError:  # e.g. a read-only home on a cluster: compile again in each process
        return None


def _make(path: Path) -> None:
    """Create a directory and its parents, accessible to this user only."""
    if not path.is_dir():
        _make(path.parent)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)


def _have_alone(path: Path) -> None:
    """Remove the permissions of others from a directory of this user that they could not write."""
    if not hasattr(os, "getuid"):
        return
    found = os.stat(path)
    if found.st_uid == os.getuid() and found.st_mode & 0o077 and not _others_write(found):
        os.chmod(path, 0o700)


def distrust(path: Path) -> str:
    """Return why another user could change the files in a directory; empty if nobody can.

    >>> distrust(Path("/"))
    ''
    """
    if not hasattr(os, "getuid"):
        return ""
    parts, at, links = list(Path(os.path.abspath(path)).parts[1:]), Path("/"), 0
    if why := _distrust_one(at, last=not parts):
        return why
    while parts:
        at /= parts.pop(0)
        if at.name == "..":
            at = at.parent.parent
            continue
        if at.is_symlink():
            links += 1
            if links > _MOST_LINKS:
                return f"{path} has too many links"
            if os.lstat(at).st_uid not in (0, os.getuid()):
                return f"the link {at} is someone else's"
            target = Path(os.readlink(at))
            at, inner = (Path("/"), target.parts[1:]) if target.is_absolute() else (at.parent, target.parts)
            parts = [*inner, *parts]
            continue
        if why := _distrust_one(at, last=not parts):
            return why
    return ""


def _distrust_one(path: Path, *, last: bool) -> str:
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        return f"{path} is not a directory"
    if found.st_uid not in (0, os.getuid()):
        return f"{path} is someone else's"
    sticky = found.st_mode & stat.S_ISVTX and not last
    if _others_write(found) and not sticky:
        return f"others can write {path}"
    return ""


def _others_write(found: os.stat_result) -> bool:
    """Return whether anyone but the owner may write; the owner's private group does not count."""
    if not found.st_mode & _OTHERS:
        return False
    if found.st_mode & stat.S_IWOTH:
        return True
    import grp
    import pwd

    try:
        group, owner = grp.getgrgid(found.st_gid), pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        return True
    return group.gr_name != owner or not set(group.gr_mem) <= {owner}


# --- temporary directories --------------------------------------------------------------------------


def _temporary() -> Path:
    """Create a temporary directory for this process, and remove those of processes that have ended."""
    try:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        held = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as nowhere:
        raise UserError(
            "compile", expected="a writable directory for compiled kernels or for temporary files",
            got=str(nowhere), hint="set TIDEMILL_CACHE to a directory that only you can write",
        ) from nowhere  # fmt: skip
    lock(held)
    _made[path] = (os.getpid(), held)
    atexit.register(_remove_own)
    for other in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if other != path and _is_left_over(other):
            shutil.rmtree(other, ignore_errors=True)
    return path


def _remove_own() -> None:
    """Remove the directories of this process. A forked child does not remove those of its parent."""
    for path, (maker, _) in _made.items():
        if maker == os.getpid():
            shutil.rmtree(path, ignore_errors=True)


def _is_left_over(path: Path) -> bool:
    """Return whether this is a directory of ours whose process, and its forked children, have ended."""
    try:
        found = os.lstat(path)
        mine = not hasattr(os, "getuid") or found.st_uid == os.getuid()
        if not stat.S_ISDIR(found.st_mode) or not mine:
            return False
        held = open_plain(path / _LOCK, os.O_RDWR, step="compile")
    except (OSError, UserError):  # it has no lock yet, or was removed
        return False
    try:
        return lock(held)
    finally:
        os.close(held)
