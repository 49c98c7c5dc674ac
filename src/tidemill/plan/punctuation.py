"""A promise about the rows that a stream has still to come, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.core.errors import UserError
from tidemill.core.time import FARTHEST, InstantLike, instant


@dataclass(frozen=True)
class Punctuation:
    """The promise that no row to come has a time below an instant, in a stream or in a file of one.

    With `key`, it is about some values of key columns only: `key={"sensor": 7}`, or lists of values.

    >>> Punctuation("1970-01-01T00:00:01Z").ticks
    1000000
    >>> Punctuation(20, key={"sensor": 7})
    Punctuation(below=20, key={'sensor': 7})
    """

    below: InstantLike
    key: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if abs(self.ticks) > FARTHEST:
            raise UserError("punctuation", expected="a time within 2**61 ticks of zero", got=str(self.ticks))
        if self.key is not None and not (isinstance(self.key, Mapping) and self.key):
            raise UserError("punctuation", expected="key={'column': value}", got=f"{self.key!r:.80}")

    @property
    def ticks(self) -> int:
        """The instant in ticks."""
        return instant(self.below, step="punctuation")
