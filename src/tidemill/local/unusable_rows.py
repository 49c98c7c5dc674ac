"""Find the rows of an input that lack a windowing attribute of the query."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.core.schema import Schema
from tidemill.core.time import FARTHEST
from tidemill.expr.nodes import Column
from tidemill.kernels.arrow import validity, values
from tidemill.local.expressions import evaluate
from tidemill.plan.usable_rows import Check


class UnusableRows:
    """The checks of an input."""

    def __init__(self, checks: Sequence[Check], schema: Schema) -> None:
        self._checks, self._schema = tuple(checks), schema

    def __bool__(self) -> bool:
        return bool(self._checks)

    def find(self, batch: pa.RecordBatch) -> dict[str, npt.NDArray[np.bool_]]:
        """Return masks of rows by reason, each row under one reason at most."""
        found: dict[str, npt.NDArray[np.bool_]] = {}
        for check in self._checks:
            if self._surely_usable(check, batch):
                continue
            for reason, condition in check.unusable:
                array = evaluate(condition, batch, self._schema)
                mask, valid = values(array).astype(np.bool_), validity(array)
                mask = mask if valid is None else mask & (valid != 0)
                for others in found.values():
                    mask = mask & ~others
                found[reason] = found[reason] | mask if reason in found else mask
        return {reason: mask for reason, mask in found.items() if mask.any()}

    @staticmethod
    def _surely_usable(check: Check, batch: pa.RecordBatch) -> bool:
        """Return whether a look at the column is enough, as it is most often."""
        if check.always or not isinstance(check.attribute, Column):
            return False
        given = batch.column(check.attribute.name)
        if given.null_count or not len(given):
            return not len(given)
        ticks = values(given)
        return bool(ticks.min() >= -FARTHEST and ticks.max() <= FARTHEST)
