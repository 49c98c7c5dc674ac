"""What fails in a task, said as the `UserError` that it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tidemill.core.errors import UserError

MARK = "tidemill: "
"""Before the messages that Spark raises for us; see `F.raise_error`."""

_RAISED = re.compile(r"tidemill\.[\w.]*Error: (.*)")
_MARKED = re.compile(re.escape(MARK) + r"(.*)")


_FROM_FILES = re.compile(r"(?:java\.io|java\.nio\.file|org\.apache\.hadoop)\.([\w.]*Exception): ([^\n]*)")
"""What Java says of a file that is damaged or gone."""


class HasSources(Protocol):
    """What knows the files that it is made from."""

    def walk(self) -> Iterator[Any]: ...


@contextmanager
def told(step: str, node: HasSources | None = None) -> Iterator[None]:
    """Run a job: our own message is found in Spark's exception and raised as a `UserError`.

    What Java cannot read is one, too; it says which file only sometimes, so those of the node are named.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as failed:
        found = _RAISED.search(str(failed)) or _MARKED.search(str(failed))
        if found is None and (unread := _FROM_FILES.search(str(failed))):
            read = [n.function for n in node.walk() if n.op == "read_lines"] if node is not None else []
            files = ", ".join(read) or "a file"
            raise UserError(step, f"cannot read {files}: {unread[2] or unread[1]}") from failed
        if found is None:
            raise
        where, _, message = found.group(1).partition(": ")
        # SQLSTATE is Spark's note at the end of what `raise_error` says.
        message = re.sub(r"\s*SQLSTATE: \w+\s*$", "", message)
        raise UserError(where or step, message) from failed
