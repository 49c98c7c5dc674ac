"""Sample a fixed number of elements."""

from __future__ import annotations

import random

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.core.errors import UserError
from tidemill.spark.dia.elements import columns_of
from tidemill.spark.dia.operation import BESIDE, Operation
from tidemill.spark.expr.values import named

_DRAW = f"{BESIDE}draw"


def sample(parent: Operation, n: int, seed: int | None = None) -> Operation:
    """n of the elements, every subset equally likely; all of them if there are fewer."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise UserError("sample", expected="a number of elements, 0 or more", got=repr(n))
    fixed = random.getrandbits(31) if seed is None else seed

    def build() -> DataFrame:
        # Each element gets a random number; the n smallest are taken, of which a partition sends at most n.
        drawn = parent.frame.select("*", F.rand(fixed).alias(_DRAW)).orderBy(_DRAW).limit(n)
        return drawn.select(*map(named, columns_of(parent.kind).names))

    return Operation(
        "sample", (parent,), parent.kind, parent.session, build, f"n={n}", ordered=False,
        moves="up to n elements of each partition", settled=False,
    )  # fmt: skip
