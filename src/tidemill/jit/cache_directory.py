"""Where compiled kernels are kept, and whether that place can be trusted: what lies there is run.

The directory is the user's alone (0700); of one that `TIDEMILL_CACHE` names, what is made in it is. On
the way nobody else may be able to put another in its place: each directory belongs to the user or to root,
and nobody else can write it, unless it is sticky as /tmp is. Links are followed, as long as the same is true
of where they lie and lead to. A place that is not so is not used, with a warning; a directory that is
removed at exit takes its place.
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
"""Directories that go at exit: the process that made them, and the lock that says it lives."""


def cache_directory() -> Path:
    """Where kernels lie: `machine` in `TIDEMILL_CACHE`, or in `tidemill/kernels` of the user's cache."""
    global _found
    if _found is None or not os.path.isdir(_found):  # a parent's is gone when the parent is
        _found = _kept() or _temporary()
    return _found


def _kept() -> Path | None:
    """The directory that lasts, made if need be; None where it cannot be written, or trusted."""
    given = os.environ.get("TIDEMILL_CACHE")
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home
        home = Path("/nonexistent")
    root = Path(given or home / "tidemill" / "kernels").absolute()
    path = root / "machine"
    try:
        for directory in (root, path):  # nothing is made in one that is not trusted
            _make(directory)
            if why := distrust(directory):
                warnings.warn(
                    f"compiled kernels are not kept in {directory}: {why}; chmod it, or set TIDEMILL_CACHE "
                    "to a directory that only you can write",
                    RuntimeWarning, stacklevel=2,
                )  # fmt: skip
                return None
        # Of a directory that is named, the rest may be for others.
        for directory in (path,) if given else (root.parent, root, path):
            _have_alone(directory)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError:  # a read-only home, as on some clusters: compile again in each process
        return None


def _make(path: Path) -> None:
    """Make a directory and those above it, all of them for this user alone."""
    if not path.is_dir():
        _make(path.parent)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)


def _have_alone(path: Path) -> None:
    """Take from others what they may do in a directory of ours, if it is none that they could write."""
    if not hasattr(os, "getuid"):
        return
    found = os.stat(path)
    if found.st_uid == os.getuid() and found.st_mode & 0o077 and not _others_write(found):
        os.chmod(path, 0o700)


def distrust(path: Path) -> str:
    """Why someone else could change what lies in a directory; nothing if nobody can.

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
        return f"{path} is no directory"
    if found.st_uid not in (0, os.getuid()):
        return f"{path} is someone else's"
    sticky = found.st_mode & stat.S_ISVTX and not last
    if _others_write(found) and not sticky:
        return f"others can write {path}"
    return ""


def _others_write(found: os.stat_result) -> bool:
    """Whether anybody but the owner may write; a group that only the owner is in is nobody else."""
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


# --- directories that go at exit --------------------------------------------------------------------


def _temporary() -> Path:
    """A directory of this process. Those of others that have ended are removed on the way."""
    try:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        held = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as nowhere:
        raise UserError(
            "compile", expected="a directory for compiled kernels, also in the directory for temporary files",
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
    """Remove what this process made; a child that was forked from it has made none of it."""
    for path, (maker, _) in _made.items():
        if maker == os.getpid():
            shutil.rmtree(path, ignore_errors=True)


def _is_left_over(path: Path) -> bool:
    """Whether this is a directory of ours of which the maker, and those it forked, have ended."""
    try:
        found = os.lstat(path)
        mine = not hasattr(os, "getuid") or found.st_uid == os.getuid()
        if not stat.S_ISDIR(found.st_mode) or not mine:
            return False
        held = open_plain(path / _LOCK, os.O_RDWR, step="compile")
    except (OSError, UserError):  # it has no lock yet, or is gone
        return False
    try:
        return lock(held)
    finally:
        os.close(held)
