"""Resolve a path to files: one file, all files of a directory, or a pattern; sorted by name."""

from __future__ import annotations

import os
import re

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemill.core.errors import UnsupportedError, UserError
from tidemill.spark.private import JavaError, files_named, java_message


def files_of(session: SparkSession, path: str | os.PathLike[str], *, step: str) -> list[str]:
    """The files that a path names, sorted. Hidden files (`.x`, `_x`) are left out, as in Hadoop."""
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
            got=f"{str(path)!r}, which matches nothing", hint="names that start with . or _ are hidden",
        )  # fmt: skip
    return sorted(files)


def _before_pattern(path: str) -> str:
    """The directory in which a pattern is matched.

    >>> _before_pattern("/data/of/2024-*/x.txt"), _before_pattern("*.txt")
    ('/data/of/', '.')
    """
    plain = re.split(r"[*?{\[\\]", path, maxsplit=1)[0]
    return plain[: plain.rfind("/") + 1] or "."


def _check_plain(file: str, root: str, step: str) -> None:
    """Require a plain file, without links below the root that the user named: a link could point anywhere."""
    at = file
    while at not in (root, "/"):
        if os.path.islink(at):
            raise UserError(step, expected=f"files in {root}", got=f"{at}, a link")
        at = os.path.dirname(at)
    if not os.path.isfile(file):  # opening a pipe would wait for its writer
        raise UserError(step, expected="plain files", got=f"{file}, which is not a file")


def local_path(path: str | os.PathLike[str], *, step: str) -> str:
    """The absolute local path, on this machine or on a file system that all workers have mounted."""
    text = os.fspath(path)
    # Not parsed as a URL: names may have `#` and `?`, which Hadoop does not quote.
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "file":
        return os.path.abspath("/" + rest[2:].partition("/")[2] if rest.startswith("//") else rest)
    if rest.startswith("//"):
        raise UnsupportedError(
            step, f"{scheme}: addresses", instead="give a directory that all workers have mounted"
        )  # fmt: skip
    return os.path.abspath(text)


def escaped(file: str) -> str:
    """Escape a file name for Hadoop, which expects patterns.

    >>> escaped("a[1]{x}*.txt")
    'a\\\\[1\\\\]\\\\{x\\\\}\\\\*.txt'
    """
    if "," in file:  # Hadoop splits names at commas, and has no escape for them
        raise UserError("read_lines", expected="file names without a comma", got=repr(file))
    return "".join("\\" + c if c in "\\{}[]*?" else c for c in file)
