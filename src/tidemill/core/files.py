"""One way to write a file by rename, and one to open a file that someone else may have made.

A file that is written here gets its name when all of it is on disk, or never. Only plain files are opened
here: symlinks, pipes, devices and directories are refused. An error of the system becomes a `UserError` that
names the path.
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
    errno.ENOSPC: "the disk is full: free some room and do it again",
    errno.EDQUOT: "the quota is used up: free some room and do it again",
    errno.EFBIG: "files may not get as large as that here: see ulimit -f",
    errno.EROFS: "the file system can only be read: name another directory",
    errno.EACCES: "this user may not do that there: see the permissions of the file and its directory",
}


@contextlib.contextmanager
def our_errors(step: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors of the system into a `UserError` that names the path."""
    if "\0" in os.fspath(path):  # the one thing that is no path, of which Python says another error
        raise UserError(step, expected="a path", got=f"{os.fspath(path)!r}, which has a NUL in it")
    try:
        yield
    except OSError as failed:
        where = failed.filename if isinstance(failed.filename, str) else os.fspath(path)
        said = f"{type(failed).__name__}: {failed.strerror or failed}"
        shown = os.fspath(path) if where == os.fspath(path) else f"{os.fspath(path)}, at {where}"
        raise UserError(
            step, expected=f"{shown} to be read and written as usual", got=said,
            hint=_HINTS.get(failed.errno or 0, ""),
        ) from failed  # fmt: skip


def resolved(path: str | os.PathLike[str], *, step: str) -> Path:
    """The path with its links followed; a path that no system accepts is refused."""
    try:
        return Path(path).resolve()
    except (ValueError, TypeError, RuntimeError) as no_path:  # a NUL, or links in a circle
        raise UserError(step, expected="a path", got=f"{path!r}: {no_path}") from no_path


def open_plain(path: Path, flags: int = os.O_RDONLY, *, step: str, mode: int = 0o666) -> int:
    """Open a plain file at exactly this path, and return its descriptor. Anything else is refused.

    `FileNotFoundError` is left to the caller.
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
    """The content of a plain file; see `open_plain`."""
    descriptor = open_plain(path, step=step)
    with our_errors(step, path), open(descriptor, "rb") as file:
        return file.read()


def is_plain(path: Path) -> bool:
    """Whether the path itself names a plain file."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except (OSError, ValueError):  # a NUL in it
        return False


def have_directory(path: Path, *, step: str) -> None:
    """Make a directory, unless there is one."""
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
    """Refuse a link or a file where a directory is expected. Nothing at the path is accepted."""
    with our_errors(step, path), contextlib.suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise UserError(
                step, expected=f"a directory at {path}", got="a link or a file",
                hint="what a store has lies in its own directory",
            )  # fmt: skip


@contextlib.contextmanager
def appearing(path: Path, *, step: str, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a file to write. It gets its name when all of it is on disk; if that fails, it is removed.

    A file that is not `durable` is not synchronised with the disk, and may be lost if the machine stops.

    While it is written it is called `.<name>.<random>.tmp`, in the same directory, and is locked. The file of
    a killed process is not locked: `remove_unfinished` finds it by that.
    """
    with our_errors(step, path):
        hidden, file = _hidden(path)
        try:
            with file:
                yield file
                file.flush()
                if durable:
                    os.fsync(file.fileno())
                os.replace(hidden, path)  # still locked: nobody takes it for a leftover
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
        except FileNotFoundError:  # taken for a leftover, before it was locked
            pass
        file.close()


def becomes(name: str) -> str:
    """The final name of a file: its own, unless it is one that `appearing` still writes."""
    hidden = _HIDDEN.fullmatch(name)
    return hidden[1] if hidden else name


def remove_unfinished(path: Path, *, step: str) -> None:
    """Remove the unfinished files that killed processes left of this one: those that nobody has locked."""
    with our_errors(step, path):
        for left in path.parent.iterdir():
            if left.name == path.name or becomes(left.name) != path.name or not is_plain(left):
                continue
            try:
                descriptor = open_plain(left, os.O_RDWR, step=step)
            except (FileNotFoundError, UserError):  # it has its name by now, or is someone else's
                continue
            try:
                if lock(descriptor):
                    left.unlink(missing_ok=True)
            finally:
                os.close(descriptor)


def lock(descriptor: int) -> bool:
    """Try to lock the file or directory of a descriptor until it is closed; False if that fails.

    It fails at once if another process has the lock, or if the system has no locks.
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
    """Write the names in a directory to disk."""
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
