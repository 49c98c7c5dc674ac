"""Paths that name files: one, all of a directory, or a pattern; in lexicographic order."""

from __future__ import annotations

import os
from typing import Any

from pyspark.sql import SparkSession

from tidemill.core.errors import UnsupportedError, UserError


def files_of(session: SparkSession, path: str | os.PathLike[str], *, step: str) -> list[str]:
    """The files that a path names, by name. Hidden ones (`.x`, `_x`) are left out, as Hadoop does."""
    context: Any = session.sparkContext
    hadoop = context._jvm.org.apache.hadoop.fs.Path
    where = hadoop(str(path))
    system = where.getFileSystem(context._jsc.hadoopConfiguration())
    found = [hadoop(str(path))] if system.exists(where) else []
    if not found:
        found = [status.getPath() for status in system.globStatus(where) or []]
    files: list[str] = []
    for each in found:
        status = system.getFileStatus(each)
        inside = system.listStatus(each) if status.isDirectory() else [status]
        names = [
            s.getPath().toString() for s in inside
            if not s.isDirectory() and s.getPath().getName()[0] not in "._"
        ]  # fmt: skip
        if status.isDirectory():
            _check_no_links(names, step)
        files += names
    if not files:
        raise UserError(
            step, expected="a file, a directory with files, or a pattern that matches some",
            got=f"{str(path)!r}, which matches nothing", hint="names that begin with . or _ are hidden",
        )  # fmt: skip
    return sorted(files)


def _check_no_links(files: list[str], step: str) -> None:
    """What a directory holds is in it: a link could name any file of who reads it."""
    for file in files:
        if file.startswith("file:") and os.path.islink(local_path(file, step=step)):
            got = f"{local_path(file, step=step)}, a link"
            raise UserError(step, expected="a directory of files", got=got)


def local_path(path: str | os.PathLike[str], *, step: str) -> str:
    """A path of this machine, or of a file system that all workers have mounted."""
    text = os.fspath(path)
    # Not read as a URL: Hadoop does not quote `#` and `?`, which names may have.
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "file":
        return os.path.abspath("/" + rest[2:].partition("/")[2] if rest.startswith("//") else rest)
    if rest.startswith("//"):
        raise UnsupportedError(
            step, f"{scheme}: addresses", instead="give a directory that all workers have mounted"
        )  # fmt: skip
    return os.path.abspath(text)


def escaped(file: str) -> str:
    """A file name by itself where Hadoop expects patterns.

    >>> escaped("a[1]{x}*.txt")
    'a\\\\[1\\\\]\\\\{x\\\\}\\\\*.txt'
    """
    if "," in file:  # Hadoop takes it for the end of a name, whatever is before it
        raise UserError("read_lines", expected="file names without a comma", got=repr(file))
    return "".join("\\" + c if c in "\\{}[]*?" else c for c in file)
