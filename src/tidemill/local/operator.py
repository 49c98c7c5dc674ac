"""The operator: the one thing that the local engine is made of.

A specification (a frozen plan node), a state in arrays, and the calls below. Live queries, `run`, threads
and Spark tasks all drive graphs of operators (`graph`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from tidemill.core.time import BEGINNING
from tidemill.local.limits import Limits

Snapshot = dict[str, pa.Table]
"""The state of an operator, as named tables; see `local.snapshot` for one piece of bytes."""


class Operator(ABC):
    """Batches in at ports, batches out as time moves on.

    Time moves by promises: `advance(port, below)` says that no later batch of the port has a row below
    an instant. Rows that come below it all the same are *late*: they are counted and kept (`late`).
    """

    ports = 1

    @abstractmethod
    def push(self, port: int, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Take rows in. What it can give without any promise is returned at once."""

    @abstractmethod
    def advance(self, port: int, below: int, *, prompt: bool = False) -> Iterator[pa.RecordBatch]:
        """What is complete now that no row below an instant can come to a port.

        `FOREVER` ends the port. Nothing happens before the iterator is read, to its end. Unless it is
        `prompt`, it may give results later, with another call.
        """

    def advance_keys(
        self, port: int, keys: Mapping[str, pa.Array], below: int, *, prompt: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """What is complete now that no row with some keys can come to a port below an instant.

        `keys` are columns of the port by name, with a row for each key that is promised apart. An operator
        that cannot use such a promise gives nothing: it waits for one about all keys.
        """
        return iter(())

    @property
    @abstractmethod
    def promise(self) -> Limits:
        """What this operator promises about the time of the rows that it still gives.

        Limits by key, where it has any, are by ids of its own; others use the common one.
        """

    def late(self) -> pa.Table | None:
        """The rows that came late so far, as they came; None where no row can be late."""
        return None

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """The whole state, as Arrow tables. The operator can go on afterwards."""

    @abstractmethod
    def restore(self, state: Snapshot) -> None:
        """Go on from a snapshot; the operator is fresh, and of the same specification."""

    def close(self) -> None:  # noqa: B027  (most operators hold nothing but memory)
        """Stop threads. What they have not begun is left undone."""


class Watermarks:
    """What the ports of an operator were promised, and what that says about all of them together.

    >>> marks = Watermarks(2)
    >>> marks.raise_to(0, 7), marks.raise_to(1, 5)
    (None, None)
    >>> marks.lowest
    5
    """

    def __init__(self, ports: int) -> None:
        self._below = [BEGINNING] * ports

    def raise_to(self, port: int, below: int) -> None:
        """Note what a port promised."""
        self._below[port] = max(self._below[port], below)

    @property
    def lowest(self) -> int:
        """The promise for all ports together."""
        return min(self._below)

    @property
    def ports(self) -> list[int]:
        """The promise for each port."""
        return list(self._below)
