"""What fails in a task, said as the `UserError` that it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tidemill.core.errors import UserError

MARK = "tidemill: "
"""Before the messages that Spark raises for us; see `F.raise_error`."""

_RAISED = re.compile(r"tidemill\.[\w.]*Error: (.*)")
_MARKED = re.compile(re.escape(MARK) + r"(.*)")


@contextmanager
def told(step: str) -> Iterator[None]:
    """Run a job: our own message is found in Spark's exception and raised as a `UserError`."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as failed:
        found = _RAISED.search(str(failed)) or _MARKED.search(str(failed))
        if found is None:
            raise
        where, _, message = found.group(1).partition(": ")
        # SQLSTATE is Spark's note at the end of what `raise_error` says.
        message = re.sub(r"\s*SQLSTATE: \w+\s*$", "", message)
        raise UserError(where or step, message) from failed
