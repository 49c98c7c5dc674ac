"""Tidemill's errors inside Spark's exceptions, which carry only their text."""

from __future__ import annotations

import re

from tidemill.core.errors import UserError

MARK = "tidemill: "
"""Before the messages that Spark raises for us; see `F.raise_error`."""

_OURS = re.compile(rf"(?:\btidemill\.[\w.]*Error: |{MARK})(.*)")


def our_error(failed: Exception, step: str) -> UserError | None:
    """Tidemill's error inside an exception of Spark; None if there is none.

    Of several, each raised from the one before, it is the last. `step` is for one that says none.
    """
    found = _OURS.findall(str(failed))
    if not found:
        return None
    # SQLSTATE is Spark's note at the end of what `raise_error` says.
    text = re.sub(r"\s*SQLSTATE: \w+\s*$", "", found[-1])
    where, colon, message = text.partition(": ")
    return UserError(where, message) if colon else UserError(step, text)
