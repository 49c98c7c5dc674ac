"""Joins that send rows to where most of their key is. Rows without a partner are not sent."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.core.errors import UserError
from tidemill.spark.exchange.cost import of_rows
from tidemill.spark.exchange.decision import decide, noted
from tidemill.spark.exchange.detect import Side, locations
from tidemill.spark.exchange.keys import any_null, checked_keys, common_types, hash_of, row_bytes
from tidemill.spark.exchange.partitions import pinned, reads_only
from tidemill.spark.exchange.route import fresh_name, null_where, routed
from tidemill.spark.exchange.slots import slots_of
from tidemill.spark.expr import named

LEAVES = {
    "inner": (True, True), "left": (False, True), "right": (True, False), "full": (False, False),
    "semi": (True, True), "anti": (False, True),
}  # fmt: skip
"""Whether a row of the left, the right side leaves the join if the other side does not have its key."""


def join(
    left: DataFrame, right: DataFrame, on: Sequence[str], how: str = "inner", *, detect: str = "auto",
    by: str = "auto",
) -> DataFrame:  # fmt: skip
    """`left.join(right, on, how)`, of which only the rows travel that must.

    Example: join(orders, lines, ["order"], "left", detect="on")
    """
    step = f"join {how}"
    if how not in LEAVES:
        raise UserError("join", expected=f"how= one of {', '.join(LEAVES)}", got=repr(how))
    keys = checked_keys(step, left, on)
    checked_keys(step, right, keys)
    kinds = common_types(step, left, right, keys)
    hash = null_where(any_null(keys), hash_of(keys, kinds))
    model = partial(of_rows, dropped=LEAVES[how])
    decision = decide(step, [left, right], keys, hash, detect, by, model)
    if not decision.detects:
        return noted(left.join(right, list(keys), how), decision)
    frames = [pinned(left), pinned(right)]
    slots = slots_of(frames, by)
    sides = [Side.of(df, hash, row_bytes(df)) for df in frames]
    found = locations(sides, slots, partners=True, inner=all(LEAVES[how]))
    target = fresh_name("target", [*left.columns, *right.columns])
    together = [
        routed(df, hash, target, slots, side, found, again=reads_only(before))
        for side, (df, before) in enumerate(zip(frames, (left, right)))
    ]
    joined = _joined(together[0], together[1], [*keys, target], how).drop(target)
    return noted(joined, decision.with_detected(found, slots))


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
