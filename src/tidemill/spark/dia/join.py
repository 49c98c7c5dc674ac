"""Inner (Table 3.3, chapter 5) and outer joins by key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from tidemill.core.errors import UserError
from tidemill.core.floats import order_key
from tidemill.spark import exchange
from tidemill.spark.dia.elements import spelled
from tidemill.spark.dia.folds import A, B
from tidemill.spark.dia.keys import key_of, restored, with_key
from tidemill.spark.dia.operation import Operation, described
from tidemill.spark.dia.rows import RowFunction
from tidemill.spark.dia.tracing import Function

HOWS = ("inner", "left", "right", "full")


def join(
    left: Operation, right: Operation, key1: Function, key2: Function, function: Function, *,
    how: str = "inner", returns: Any = None, detect: str = "auto",
) -> Operation:  # fmt: skip
    """Apply a function to each pair of elements with equal keys. A null key matches nothing."""
    step = "inner_join" if how == "inner" else f"outer_join {how}"
    if how not in HOWS:
        raise UserError("outer_join", expected=f"how= one of {list(HOWS)}", got=repr(how))
    keys = [key_of(left, key1, step=step), key_of(right, key2, step=step)]
    if keys[0].type != keys[1].type:
        raise UserError(
            step, expected=f"keys of one type, {spelled(keys[0].type)} as on the left",
            got=spelled(keys[1].type), hint="cast one of them in its key function",
        )  # fmt: skip
    kinds, pairs = [left.kind, right.kind], _pairs(left, right, key1, key2)
    called = RowFunction(function, kinds, [A, B], returns, pairs, step=step)

    def build() -> DataFrame:
        ours = with_key(left, keys[0], "l", step=step)
        theirs = with_key(right, keys[1], "r", step=step)
        joined = exchange.join(ours, theirs, keys[0].names, how, detect=detect)
        rows = joined.select(*restored(left.kind, "l", A), *restored(right.kind, "r", B))
        return called.on(rows)

    return Operation(
        step, (left, right), called.kind, left.session, build, ordered=False, settled=False,
        moves="elements of both, by key", detect=detect,
        **{**described(*(k.function for k in keys), called.function),
           "function": f"keys {keys[0].function} = {keys[1].function}, {called.function}"},
    )  # fmt: skip


def _pairs(left: Operation, right: Operation, key1: Function, key2: Function) -> Callable[[], list[Any]]:
    """Example pairs from which a type is inferred, with equal keys if the first elements have some."""

    def pairs() -> list[Any]:
        any_pairs = list(zip(left.head, right.head))
        try:
            theirs = [(order_key(key2(b)), b) for b in right.head]
            ours = [(order_key(key1(a)), a) for a in left.head]
        except Exception:  # a traced key function may fail on values: `w.len()` does
            return any_pairs
        return [(a, b) for k, a in ours for other, b in theirs if k == other] or any_pairs

    return pairs
