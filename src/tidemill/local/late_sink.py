"""Late rows leave the memory of a live query: as Parquet files in a directory, or to a function.

A file is named after the input and the number of its first row among all late rows of the input. If the query
is restored from a checkpoint before it, the same number comes again, and the file is replaced: each late row
is in the directory once. Files with greater numbers are of another run, and such a directory is refused; so
is one with any file of the input, if the query is new.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from tidemill.core.errors import UserError
from tidemill.core.files import have_directory
from tidemill.io.sinks import write_parquet
from tidemill.local.live_input import LiveInput

LateTo: TypeAlias = str | PathLike[str] | Callable[[str, pa.Table], object]
"""A directory, or a function of the name of an input and a table."""


class LateSink:
    """Where late rows go."""

    def __init__(self, to: LateTo) -> None:
        self._call = to if callable(to) else None
        self._folder: Path | None = None
        if isinstance(to, (str, PathLike)):
            self._folder = Path(fspath(to))
            have_directory(self._folder, step="read late=")
        elif self._call is None:
            raise UserError("read", expected="late= a directory, or a function", got=f"{to!r:.80}")

    def require_own(self, inputs: Mapping[str, LiveInput]) -> None:
        """Raise an error if the directory has files of another run, which would be replaced one day."""
        for name, given in inputs.items() if self._folder is not None else ():
            assert self._folder is not None
            first = f"{name}-{_first(given):012d}.parquet"
            there = [p.name for p in self._folder.glob(f"{glob.escape(name)}-*.parquet")]
            fresh = given.counts.events == 0  # then a file with this number is not one to be written again
            later = [found for found in there if found > first or (fresh and found == first)]
            if later:
                raise UserError(
                    "read late=", expected=f"a directory with the late rows of {name} up to now",
                    got=f"{max(later)} in {self._folder}, which has later ones",
                    hint="it is of another run: name another directory, or restore the last checkpoint",
                )  # fmt: skip

    def take(self, name: str, given: LiveInput) -> None:
        """Call the function with new late rows, which are then forgotten."""
        if self._call is not None and given.has_late:
            self._call(name, given.late())
            given.take_late()

    def write(self, inputs: Mapping[str, LiveInput]) -> None:
        """Write the late rows of each input to a file, and forget them."""
        if self._folder is None:
            return
        for name, given in inputs.items():
            if given.has_late:
                table = given.late()
                path = self._folder / f"{name}-{_first(given):012d}.parquet"
                write_parquet(path, table.schema, table.to_batches())
                given.take_late()


def _first(given: LiveInput) -> int:
    """Return how many late rows left the memory before those that are there."""
    return sum(given.counts.by_reason.values()) - int(given.late().num_rows)
