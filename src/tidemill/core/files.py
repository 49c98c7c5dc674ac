"""Write files atomically, and open files safely that another user may have made.

A written file gets its name only when all of it is on disk. Only regular files are opened: symlinks, pipes,
devices and directories are rejected. Errors of the operating system become a `UserError` that names the path.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tidemill.core.errors import UserError

_KINDS = {
    stat.S_IFLNK: "a symlink", stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip
_CAREFUL = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Do not follow a symlink, and do not wait for the writer of a pipe."""
_HIDDEN = re.compile(r"\.(.+)\.[0-9a-f]{12}\.tmp")
_HINTS = {
    errno.ENOSPC: "the disk is full: free some space and try again",
    errno.EDQUOT: "the quota is used up: free some space and try again",
    errno.EFBIG: "the file is larger than the limit: see ulimit -f",
    errno.EROFS: "the file system is read-only: name another directory",
    errno.EACCES: "permission denied: check the permissions of the file and its directory",
}


@contextlib.contextmanager
def our_errors(step: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors of the operating system into a `UserError` that names the path."""
    if "\0" in os.fspath(path):  # for which Python raises a ValueError
        raise UserError(step, expected="a path", got=f"{os.fspath(path)!r}, which has a NUL in it")
    try:
        yield
    except OSError as failed:
        where = failed.filename if isinstance(failed.filename, str) else os.fspath(path)
        said = f"{type(failed).__name__}: {failed.strerror or failed}"
        shown = os.fspath(path) if where == os.fspath(path) else f"{os.fspath(path)}, at {where}"
        raise UserError(
            step, expected=f"{shown} to be readable and writable", got=said,
            hint=_HINTS.get(failed.errno or 0, ""),
        ) from failed  # fmt: skip


def resolved(path: str | os.PathLike[str], *, step: str) -> Path:
    """Return the path with its symlinks resolved; raise a `UserError` if it is not a valid path."""
    try:
        return Path(path).resolve()
    except (ValueError, TypeError, RuntimeError) as no_path:  # a NUL, or a loop of symlinks
        raise UserError(step, expected="a path", got=f"{path!r}: {no_path}") from no_path


def open_plain(path: Path, flags: int = os.O_RDONLY, *, step: str, mode: int = 0o666) -> int:
    """Open a regular file at exactly this path and return its descriptor; reject anything else.

    The caller handles `FileNotFoundError`.
    """
    try:
        descriptor = os.open(path, flags | _CAREFUL, mode)
    except FileNotFoundError:
        raise
    except OSError as failed:
        if failed.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise _not_plain(path, _kind_at(path), step) from failed
        with our_errors(step, path):
            raise
    try:
        found = stat.S_IFMT(os.fstat(descriptor).st_mode)
        if found != stat.S_IFREG:
            raise _not_plain(path, _KINDS.get(found, "something else"), step)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_plain(path: Path, *, step: str) -> bytes:
    """Return the content of a regular file; see `open_plain`."""
    descriptor = open_plain(path, step=step)
    with our_errors(step, path), open(descriptor, "rb") as file:
        return file.read()


def is_plain(path: Path) -> bool:
    """Return whether the path itself, not the target of a symlink, is a regular file."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return False


def have_directory(path: Path, *, step: str) -> None:
    """Create a directory and its parents, unless they exist."""
    try:
        with our_errors(step, path):
            path.mkdir(parents=True, exist_ok=True)
    except UserError as failed:
        if not isinstance(failed.__cause__, (FileExistsError, NotADirectoryError)):
            raise
        raise UserError(
            step, expected=f"a directory at {path}, or nothing yet", got="a file there, or above it",
            hint="name a directory: there will be several files",
        ) from failed.__cause__  # fmt: skip


def require_own_directory(path: Path, *, step: str) -> None:
    """Raise an error if there is a link or a file at the path. It may also not exist."""
    with our_errors(step, path), contextlib.suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise UserError(
                step, expected=f"a directory at {path}", got="a link or a file",
                hint="a store keeps its files in its own directory",
            )  # fmt: skip


@contextlib.contextmanager
def appearing(path: Path, *, step: str, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a file for writing. It gets its name when all of it is written; if that fails, it is removed.

    A `durable` file is synchronised with the disk first; others may be lost if the machine stops.

    While it is written, it is named `.<name>.<random>.tmp` in the same directory, and is locked. The file of
    a killed process is not locked, so `remove_unfinished` can find it.
    """
    with our_errors(step, path):
        hidden, file = _hidden(path)
        try:
            with file:
                yield file
                file.flush()
                if durable:
                    os.fsync(file.fileno())
                os.replace(hidden, path)  # still locked, so `remove_unfinished` does not remove it
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(hidden)
            raise
        if durable:
            sync(path.parent)


def _hidden(path: Path) -> tuple[Path, BinaryIO]:
    while True:
        hidden = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
        file = open(hidden, "x+b")  # noqa: SIM115  # the caller closes it
        lock(file.fileno())
        try:
            if os.stat(hidden).st_ino == os.fstat(file.fileno()).st_ino:
                return hidden, file
        except FileNotFoundError:  # `remove_unfinished` removed it before it was locked
            pass
        file.close()


def becomes(name: str) -> str:
    """Return the final name of a file that `appearing` is writing; other names stay the same."""
    hidden = _HIDDEN.fullmatch(name)
    return hidden[1] if hidden else name


def remove_unfinished(path: Path, *, step: str) -> None:
    """Remove the unfinished files of this path that killed processes left: those without a lock."""
    with our_errors(step, path):
        for left in path.parent.iterdir():
            if left.name == path.name or becomes(left.name) != path.name or not is_plain(left):
                continue
            try:
                descriptor = open_plain(left, os.O_RDWR, step=step)
            except (FileNotFoundError, UserError):  # it was renamed, or belongs to another user
                continue
            try:
                if lock(descriptor):
                    left.unlink(missing_ok=True)
            finally:
                os.close(descriptor)


def lock(descriptor: int) -> bool:
    """Try to lock the file or directory of a descriptor until it is closed; return whether this worked.

    It fails at once if another process has the lock, or if the system has no file locks.
    """
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def sync(folder: Path) -> None:
    """Synchronise the entries of a directory with the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _kind_at(path: Path) -> str:
    try:
        return _KINDS.get(stat.S_IFMT(os.lstat(path).st_mode), "something else")
    except OSError:
        return "something else"


def _not_plain(path: Path, found: str, step: str) -> UserError:
    return UserError(
        step, expected=f"a plain file at {path}", got=found,
        hint="Tidemill neither follows links nor opens special files there",
    )  # fmt: skip
