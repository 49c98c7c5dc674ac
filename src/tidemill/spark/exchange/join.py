"""Joins that send each row to the host that has most of its key, and leave out rows without a partner."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.core.errors import UserError
from tidemill.kernels.targets import DROP, STAY
from tidemill.spark.exchange.cost import of_rows
from tidemill.spark.exchange.decision import decide, noted
from tidemill.spark.exchange.detect import Side, locations
from tidemill.spark.exchange.keys import any_null, checked_keys, common_types, hash_of, row_bytes
from tidemill.spark.exchange.partitions import pinned
from tidemill.spark.exchange.route import fresh_name, null_where, routed
from tidemill.spark.exchange.units import units_of
from tidemill.spark.expr import named

KEEPS = {
    "inner": (DROP, DROP), "left": (STAY, DROP), "right": (DROP, STAY), "full": (STAY, STAY),
    "semi": (DROP, DROP), "anti": (STAY, DROP),
}  # fmt: skip
"""What becomes of a row of the left and the right side whose key the other side does not have."""


def join(
    left: DataFrame, right: DataFrame, on: Sequence[str], how: str = "inner", *, detect: str = "auto",
    by: str = "auto",
) -> DataFrame:  # fmt: skip
    """`left.join(right, on, how)`, of which only the rows travel that must.

    Example: join(orders, lines, ["order"], "left", detect="on")
    """
    step = f"join {how}"
    if how not in KEEPS:
        raise UserError("join", expected=f"how= one of {', '.join(KEEPS)}", got=repr(how))
    keys = checked_keys(step, left, on)
    checked_keys(step, right, keys)
    kinds = common_types(step, left, right, keys)
    hash = null_where(any_null(keys), hash_of(keys, kinds))
    leaves = [missing == DROP for missing in KEEPS[how]]
    model = partial(of_rows, dropped=leaves)
    decision = decide(step, [left, right], keys, hash, detect, by, model)
    if not decision.detects:
        return noted(left.join(right, list(keys), how), decision)
    frames = [pinned(left), pinned(right)]
    units = units_of(frames, by)
    widths = [row_bytes(df) for df in frames]
    found = locations([Side.of(df, hash, u, w) for df, u, w in zip(frames, units, widths)], both=all(leaves))
    target = fresh_name("target", [*left.columns, *right.columns])
    sides = [
        routed(df, hash, target, u, found.size, told, missing)
        for df, u, told, missing in zip(frames, units, found.answers, KEEPS[how])
    ]
    joined = _joined(sides[0], sides[1], [target, *keys], how).drop(target)
    return noted(joined, decision.with_detected(found, units[0], drops=any(leaves)))


def _joined(left: DataFrame, right: DataFrame, keys: list[str], how: str) -> DataFrame:
    """The join of rows that are together. A broadcast would send them again, so there is none."""
    left = left.hint("merge")
    if how not in ("semi", "anti"):
        return left.join(right, keys, how)
    # Spark moves semi and anti joins to where rows have not been sent yet; these it leaves.
    found = fresh_name("found", left.columns)
    partners = right.groupBy(*(named(k) for k in keys)).agg(F.lit(True).alias(found))
    if how == "semi":
        return left.join(partners, keys, "inner").drop(found)
    return left.join(partners, keys, "left").filter(named(found).isNull()).drop(found)



