"""Join by sending rows to the slot with most of their key. Rows without a partner are not sent."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemill.core.errors import UserError
from tidemill.spark.exchange.cost import of_rows
from tidemill.spark.exchange.decision import decide, noted
from tidemill.spark.exchange.detect import Detected, Keys, Side
from tidemill.spark.exchange.inputs import has_bloom_filter, read_alike, steady
from tidemill.spark.exchange.keys import any_null, checked_keys, common_types, hash_of, row_bytes
from tidemill.spark.exchange.result_partitions import result_partitions
from tidemill.spark.exchange.route import null_where, routed
from tidemill.spark.expr.values import named
from tidemill.spark.names import fresh_name

OWN_FILTER = "Spark uses its own Bloom filter here, against rows without a partner"
HASHED = 16e6
"""The most bytes of the smaller side in one slot for a hash join."""
FEWER = 4
"""For a hash join, the smaller side must also have this many times fewer bytes than the other side."""
LEAVES = {
    "inner": (True, True), "left": (False, True), "right": (True, False), "full": (False, False),
    "semi": (True, True), "anti": (False, True),
}  # fmt: skip
"""For each join, whether a left row and a right row without a partner are dropped."""
ALSO = {
    "outer": "full", "fullouter": "full", "leftouter": "left", "rightouter": "right", "leftsemi": "semi",
    "leftanti": "anti",
}  # fmt: skip
"""Spark's synonyms."""


def join(
    left: DataFrame, right: DataFrame, on: Sequence[str], how: str = "inner", *, detect: str = "auto",
    by: str = "auto",
) -> DataFrame:  # fmt: skip
    """As `left.join(right, on, how)`, but only rows that must move are sent.

    Example: join(orders, lines, ["order"], "left", detect="on")
    """
    how = ALSO.get(how.replace("_", ""), how)
    step = f"join {how}"
    if how not in LEAVES:
        raise UserError("join", expected=f"how= one of {', '.join(LEAVES)}", got=repr(how))
    keys = checked_keys(step, left, on)
    checked_keys(step, right, keys)
    kinds = common_types(step, left, right, keys)
    hash = null_where(any_null(keys), hash_of(keys, kinds))
    plain = left.join(right, list(keys), how)
    filters = lambda: OWN_FILTER if has_bloom_filter(plain) else None
    decision = decide(step, [left, right], keys, detect, why_not=filters)
    if not decision.detects:
        return noted(plain, decision)
    with steady(left.sparkSession):
        frames = [read_alike(left), read_alike(right)]
        slots = result_partitions(frames, by)
        sides = [Side.of(df, hash, row_bytes(df)) for df in frames]
        with Keys(sides, slots, sample=decision.sample) as seen:
            decision = decision.judged(seen.seen, slots, of_rows)
            if not decision.detects:
                return noted(plain, decision)
            found = seen.locations(partners=True, inner=all(LEAVES[how]))
        target = fresh_name("target", [*left.columns, *right.columns])
        together = [
            routed(df, hash, target, slots, side, found) for side, df in enumerate(frames)
        ]
    joined = _joined(together[0], together[1], [*keys, target], how, found).drop(target)
    return noted(joined, decision.with_detected(found, slots))


def _build_side(found: Detected) -> int | None:
    """The side to build a hash table from, if one is small enough; else None, for a sort-merge join."""
    small = min((0, 1), key=lambda i: found.bytes[i])
    share = max(found.numbers["largest share"], 1 / len(found.answers[small]))
    fits = found.bytes[small] * share <= HASHED and FEWER * found.bytes[small] <= found.bytes[1 - small]
    return small if fits else None


def _joined(left: DataFrame, right: DataFrame, keys: list[str], how: str, found: Detected) -> DataFrame:
    """Join routed rows in place. The hints prevent a broadcast, which would send rows again."""
    small = _build_side(found)
    left = left.hint("merge") if small is None else left.hint("shuffle_hash") if small == 0 else left
    if how not in ("semi", "anti"):
        return left.join(right.hint("shuffle_hash") if small == 1 else right, keys, how)
    # Spark pushes semi and anti joins below the exchange; it does not move these equivalents.
    mark = fresh_name("found", left.columns)
    partners = right.groupBy(*(named(k) for k in keys)).agg(F.lit(True).alias(mark))
    partners = partners.hint("shuffle_hash") if small == 1 else partners
    both = left.join(partners, keys, "inner" if how == "semi" else "left")
    return (both if how == "semi" else both.filter(named(mark).isNull())).drop(mark)
