"""Errors of tasks, raised in the driver as the `UserError` that they are."""

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
"""What Java says of a file that is damaged or gone."""


class HasSources(Protocol):
    """A node that knows the files it reads."""

    def walk(self) -> Iterator[Any]: ...


@contextmanager
def clear_errors(step: str, node: HasSources | None = None) -> Iterator[None]:
    """Run a job: our own message is found in Spark's exception and raised as a `UserError`.

    What Java cannot read is one, too; it says which file only sometimes, so those of the node are named.
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
