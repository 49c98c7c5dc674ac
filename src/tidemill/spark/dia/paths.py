"""Paths that name files: one, all of a directory, or a pattern; in lexicographic order."""

from __future__ import annotations

import os
import re

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemill.core.errors import UnsupportedError, UserError
from tidemill.spark.private import JavaError, files_named, java_message


def files_of(session: SparkSession, path: str | os.PathLike[str], *, step: str) -> list[str]:
    """The files that a path names, by name. Hidden ones (`.x`, `_x`) are left out, as Hadoop does."""
    try:
        return _files_of(session, path, step)
    except (PySparkException, JavaError) as failed:
        what = java_message(failed).splitlines()[0]
        raise UserError(step, f"cannot read {str(path)!r}: {what}") from failed


def _files_of(session: SparkSession, path: str | os.PathLike[str], step: str) -> list[str]:
    named, files = files_named(session, str(path), _before_pattern(str(path)))
    for file in files:
        if file.startswith("file:"):
            root = local_path(named, step=step)
            _check_plain(local_path(file, step=step), root, step)
    if not files:
        raise UserError(
            step, expected="a file, a directory with files, or a pattern that matches some",
            got=f"{str(path)!r}, which matches nothing", hint="names that begin with . or _ are hidden",
        )  # fmt: skip
    return sorted(files)


def _before_pattern(path: str) -> str:
    """The directory that a pattern is about.

    >>> _before_pattern("/data/of/2024-*/x.txt"), _before_pattern("*.txt")
    ('/data/of/', '.')
    """
    plain = re.split(r"[*?{\[\\]", path, maxsplit=1)[0]
    return plain[: plain.rfind("/") + 1] or "."


def _check_plain(file: str, root: str, step: str) -> None:
    """A file, and no link below the root, which the user named: a link could name any file of theirs."""
    at = file
    while at not in (root, "/"):
        if os.path.islink(at):
            raise UserError(step, expected=f"files in {root}", got=f"{at}, a link")
        at = os.path.dirname(at)
    if not os.path.isfile(file):  # to open a pipe would wait for who writes it
        raise UserError(step, expected="plain files", got=f"{file}, which is not a file")


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
