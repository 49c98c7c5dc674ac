"""What rows stay on: hosts, where Spark knows which host has a partition, or partitions by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame

from tidemill.core.errors import UserError
from tidemill.spark.exchange import partitions

BY = ("auto", "host", "partition")


@dataclass(frozen=True)
class Units:
    """The unit of each partition of one input, among all units of an exchange."""

    of_partition: tuple[int, ...]
    first: tuple[int, ...]
    """Where the partitions of the result begin that each unit gets; and how many there are."""
    names: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.names)

    @property
    def targets(self) -> int:
        """How many partitions the result has."""
        return self.first[-1]

    def starts(self) -> npt.NDArray[np.int64]:
        return np.array(self.first, dtype=np.int64)


def units_of(frames: Sequence[DataFrame], by: str = "auto") -> list[Units]:
    """The units of some inputs of one exchange."""
    if by not in BY:
        raise UserError("exchange", expected=f"by= one of {', '.join(BY)}", got=repr(by))
    where = [partitions.hosts(df) for df in frames]
    known = sorted({h for own in where for h in own if h is not None})
    complete = all(h is not None for own in where for h in own)
    if by == "host" and not complete:
        raise UserError(
            "exchange", expected="inputs whose partitions are on hosts that Spark knows, for by='host'",
            got="some that could be read anywhere", hint="cache the inputs first, or write by='partition'",
        )  # fmt: skip
    if by == "host" or (by == "auto" and complete and len(known) > 1):
        # As many tasks on each host as there were before.
        each = -(-max(len(own) for own in where) // len(known))
        first = tuple(range(0, each * len(known) + 1, each))
        at = {host: i for i, host in enumerate(known)}
        return [Units(tuple(at[h] for h in own if h is not None), first, tuple(known)) for own in where]
    total = sum(map(len, where))
    names = tuple(f"partition {i}" for i in range(total))
    found, begin = [], 0
    for own in where:
        ids = tuple(range(begin, begin + len(own)))
        found.append(Units(ids, tuple(range(total + 1)), names))
        begin += len(own)
    return found
