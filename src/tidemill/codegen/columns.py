"""The columns that a kernel reads, and their parameters in the generated source."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.codegen.expressions import Load
from tidemill.core.schema import Schema
from tidemill.core.types import BOOL, STRING, DataType


@dataclass(frozen=True)
class Columns:
    """Columns by name and type; `nullable` ones have nulls, `bad` ones have rows that failed.

    Parameters are `c<k>` for values, `v<k>` for validity, `b<k>` for bad rows. For a column of strings,
    `c<k>` is the id of its first row, and the ids of the other rows follow.
    """

    schema: Schema
    nullable: frozenset[str] = frozenset()
    bad: frozenset[str] = frozenset()

    @property
    def parameters(self) -> list[str]:
        found = []
        for k, (name, _) in enumerate(self.schema):
            found.append(f"c{k}")
            if name in self.nullable:
                found.append(f"v{k}")
            if name in self.bad:
                found.append(f"b{k}")
        return found

    def loads(self, row: str = "i") -> dict[str, Load]:
        """Return the source that reads each column at a row."""
        return {
            name: Load(
                self._value(k, name, kind, row),
                f"v{k}[{row}] == 0" if name in self.nullable and kind != STRING else None,
                f"b{k}[{row}] != 0" if name in self.bad else None,
            )
            for k, (name, kind) in enumerate(self.schema)
        }

    def _value(self, k: int, name: str, kind: DataType, row: str) -> str:
        if kind == STRING:
            found = f"c{k} + np.int64({row})"
            return f"({found} if v{k}[{row}] != 0 else -1)" if name in self.nullable else found
        return f"c{k}[{row}] != 0" if kind == BOOL else f"c{k}[{row}]"
