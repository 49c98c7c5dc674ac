"""The interface of an operator of the local engine.

An operator has a specification (a frozen plan node), a state in arrays, and the methods below. Live
queries, `run`, threads and Spark tasks all drive graphs of operators (`graph`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa

from tidemill.core.time import BEGINNING
from tidemill.local.attributes import Attribute
from tidemill.local.limits import Limits

Snapshot = dict[str, pa.Table]
"""The state of an operator as named tables; `local.snapshot` converts it to bytes."""


class Operator(ABC):
    """Takes batches at its ports and returns batches of results as watermarks advance.

    `advance(port, below)` promises that no later batch of the port has a row below an instant. A row that
    breaks this promise is *late*: it is kept (`late`).
    """

    ports = 1

    @property
    def kind(self) -> str:
        """The name of such operators in states and statistics, however many threads they have."""
        return type(self).__name__.removesuffix("Operator").lower()

    @abstractmethod
    def push(self, port: int, batch: pa.RecordBatch) -> Sequence[pa.RecordBatch]:
        """Take a batch of rows, and return the results that need no watermark."""

    def stateless(self, port: int) -> Callable[[pa.RecordBatch], Sequence[pa.RecordBatch]] | None:
        """Return what may be called in place of `push`, now and later, on any thread and in any order.

        None if rows of the port change what the operator keeps, or call Python functions.
        """
        return None

    @abstractmethod
    def advance(self, port: int, below: int, *, prompt: bool = False) -> Iterable[pa.RecordBatch]:
        """Set the watermark of a port and return the results that are now complete.

        `FOREVER` ends the port. Read all results: the work happens while they are read. An operator that has
        nothing to do returns `()`. Without `prompt`, a later call may return the results.
        """

    @property
    def wants_advance(self) -> bool:
        """Whether `advance` without `prompt` could return or evict anything now, for some watermark.

        If not, whoever drives the operator need not find out the watermark.
        """
        return True

    def advance_keys(
        self, port: int, keys: Mapping[str, pa.Array], below: int, *, prompt: bool = False
    ) -> Iterable[pa.RecordBatch]:
        """Set the watermark of some keys of a port and return the results that are now complete.

        `keys` are columns of the port by name, with a row for each key. An operator that cannot use such a
        watermark returns nothing and waits for that of the whole port.
        """
        return ()

    def keys_passed_on(
        self, port: int, keys: Mapping[str, pa.Array], below: int
    ) -> tuple[dict[str, pa.Array], int] | None:
        """Return what a promise about keys of a port says of the results; None if it says nothing.

        It does where each row gives its own results, with the same keys.
        """
        return None

    @property
    def attribute(self) -> Attribute | None:
        """What its windows are over, if it is not the time and promises about it close windows."""
        return None

    def advance_on(
        self, port: int, below: int, keys: Mapping[str, pa.Array] | None = None, *, prompt: bool = False
    ) -> Iterable[pa.RecordBatch]:
        """Set the watermark of `attribute` in ticks, and return the results that are now complete.

        It holds for all rows of a port, or for some keys, which are as in `advance_keys`.
        """
        return ()

    @property
    @abstractmethod
    def promise(self) -> Limits:
        """The watermark of the results: no later result has a time below it.

        Limits by key refer to key ids of this operator; other operators use the common limit.
        """

    def so_far(self, more: Sequence[tuple[int, pa.RecordBatch]] = ()) -> Iterable[pa.RecordBatch]:
        """Return what the end of all ports would return now, after a few more batches of some ports.

        The operator goes on as if nothing had been asked. By default, for operators that keep no rows.
        """
        for port, batch in more:
            yield from self.push(port, batch)

    def size(self) -> tuple[int, int]:
        """Return the number of partials and rows that it keeps, and the bytes that hold them."""
        return 0, 0

    def settle(self) -> None:  # noqa: B027  (most operators have nothing to combine)
        """Make the state smaller, if it is large and can be, without results."""

    def expect_late(self, late: bool) -> None:  # noqa: B027  (most operators always look for them)
        """Say whether rows to come may be below their watermarks."""

    @property
    def before_start(self) -> int:
        """The number of rows in no window because they lie before the start of all windows."""
        return 0

    @property
    def keeps_rows(self) -> bool:
        """Whether the results of a row depend on others."""
        return True

    @property
    def on_arrival(self) -> bool:
        """Whether rows of port 0 are answered when they come."""
        return False

    def late(self) -> pa.Table | None:
        """Return the late rows so far, unchanged; None if no row can be late for this operator."""
        return None

    def refused(self, port: int) -> tuple[int, pa.Table] | None:
        """Return how many rows of a port could not be used, and the newest ones with the reason.

        None if there can be none.

        Only operators of live queries keep such rows: elsewhere they are an error.
        """
        return None

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Return the whole state as Arrow tables. The operator can continue afterwards."""

    def track(self) -> None:  # noqa: B027  (small states are always saved whole)
        """Record from now on what changes: all that is so far was saved, or restored."""

    def changes(self) -> Snapshot:
        """Return what changed since the last `track`, as `local.changes` has it; by default, all tables."""
        return self.snapshot()

    @abstractmethod
    def restore(self, state: Snapshot) -> None:
        """Load a snapshot of an operator with the same specification; this one must have read no data."""

    def close(self) -> None:  # noqa: B027  (most operators hold nothing but memory)
        """Stop threads. Work that has not started is dropped."""


class Watermarks:
    """The watermark of each port of an operator; their minimum is the watermark of the operator.

    >>> marks = Watermarks(2)
    >>> marks.raise_to(0, 7), marks.raise_to(1, 5)
    (None, None)
    >>> marks.lowest
    5
    """

    def __init__(self, ports: int) -> None:
        self._below = [BEGINNING] * ports

    def raise_to(self, port: int, below: int) -> None:
        """Raise the watermark of a port; it never falls."""
        self._below[port] = max(self._below[port], below)

    @property
    def lowest(self) -> int:
        """The minimum over all ports."""
        return min(self._below)

    @property
    def ports(self) -> list[int]:
        """The watermark of each port."""
        return list(self._below)
