"""Raise errors of tasks as `UserError` in the driver."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from pyspark.errors import PySparkException

from tidemill.core.errors import UserError
from tidemill.spark.errors import our_error
from tidemill.spark.private import JavaError

_FROM_FILES = re.compile(r"(?:java\.io|java\.nio\.file|org\.apache\.hadoop)\.([\w.]*Exception): ([^\n]*)")
"""Java exceptions for files that are damaged or missing."""


class HasSources(Protocol):
    """A node that knows the files it reads."""

    def walk(self) -> Iterator[Any]: ...


@contextmanager
def clear_errors(step: str, node: HasSources | None = None) -> Iterator[None]:
    """Run a job, and raise Tidemill's message inside a Spark exception as a `UserError`.

    A file that Java cannot read is a `UserError`, too; Java does not always name it, so the node's files are
    named.
    """
    try:
        yield
    except (PySparkException, JavaError) as failed:
        if (ours := our_error(failed, step)) is not None:
            raise ours from failed
        unread = _FROM_FILES.search(str(failed))
        if unread is None:
            raise
        read = [n.function for n in node.walk() if n.op == "read_lines"] if node is not None else []
        files = ", ".join(read) or "a file"
        raise UserError(step, f"cannot read {files}: {unread[2] or unread[1]}") from failed
