"""Follow what grows: a file that is appended to, or a directory in which files appear."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from pathlib import Path

from tidemill.core.errors import UserError
from tidemill.core.time import DurationLike
from tidemill.io.feeds import Feed
from tidemill.io.files import KINDS
from tidemill.io.follow_folder import STREAM_SUFFIX, FollowFolder
from tidemill.io.follow_stream import FollowStream
from tidemill.io.follow_text import FollowText
from tidemill.io.lines import FORMATS, OnBad, check_text_options

_TEXT = {"CSV": "csv", "JSON lines": "json"}


def follow(
    path: str | os.PathLike[str], *, format: str | None = None, poll: DurationLike = "100ms",
    until: Callable[[], bool] | None = None, idle: DurationLike | None = None, on_bad: OnBad | None = None,
) -> Feed:  # fmt: skip
    """Read a file that is appended to, or a directory or glob in which files appear, for `live.read`.

    A file has lines of CSV with a header, or of JSON, by its suffix or by `format`, or is an Arrow stream
    (`.arrows`, written by `tm.StreamWriter`). Only whole lines are read: a half-written one waits. A file
    that is not there yet is waited for. If it is truncated, removed or replaced (rotated), what it had is
    read, and then there is an error. The position is an offset in bytes.

    In a directory, or as matches of a glob, whole files appear by rename: Parquet, CSV, JSON lines, Arrow.
    Those that are there are read in the order of their names. The position is the names of those that were
    read.

    New rows are looked for each `poll`. It goes on until `stop()`, until nothing came for as long as `idle`,
    or until nothing is there and `until()` is true. A line that is no row is an error; with `on_bad`, a
    function gets it, and the others are read.

    >>> import tempfile, pathlib
    >>> log = pathlib.Path(tempfile.mkdtemp()) / "clicks.csv"
    >>> _ = log.write_text("t,ad\\n3,7\\n14,7\\n15")
    >>> from tidemill.stream import stream
    >>> from tidemill.aggregates.basic import count
    >>> from tidemill.windows.spec import tumbling
    >>> from tidemill.plan.disorder import Disorder
    >>> clicks = stream("clicks", time="t", schema={"t": "int64", "ad": "int64"})
    >>> live = clicks.window(tumbling(10)).agg(n=count()).live(Disorder(slack=0))
    >>> [table.to_pylist() for table in live.read(clicks=follow(log, until=lambda: True))]
    [[{'window_start': 0, 'window_end': 10, 'n': 1}]]
    >>> live.positions["clicks"]["offset"]
    14
    """
    given = os.fspath(path)
    if format is not None and format not in FORMATS:
        raise UserError("follow", expected=f"format= one of {FORMATS}", got=repr(format))
    folder = os.path.isdir(given) or given.endswith((os.sep, "/"))  # one that is not there yet is waited for
    if folder or (glob.has_magic(given) and not os.path.exists(given)):
        if format is not None or on_bad is not None:
            raise UserError(
                "follow", expected="format= and on_bad= for one file", got=f"the parts at {given!r}"
            )
        return FollowFolder(given, poll=poll, until=until, idle=idle)
    suffix = Path(given).suffix.lower()
    if suffix == STREAM_SUFFIX and format is None:
        return FollowStream(Path(given), poll=poll, until=until, idle=idle)
    kind = format or _TEXT.get(KINDS.get(suffix, ""))
    if kind is None:
        raise UserError(
            "follow", expected="a directory, a glob, or a file of CSV, JSON lines or Arrow stream (.arrows)",
            got=repr(given), hint="say format='json' or 'csv'; of other kinds, follow their directory",
        )  # fmt: skip
    check_text_options("follow", kind, on_bad)
    return FollowText(Path(given), kind, on_bad, poll=poll, until=until, idle=idle)
