"""From a description to a query of Tidemill, in the spellings that a user would write."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import tidemill as tm
from tests.fuzz.functions import AGGREGATES, UDFS
from tidemill import col
from tidemill.stream import Stream

TYPES = {
    "int": "int64", "float": "float64", "str": "string", "bool": "bool", "ts": "timestamp",
    "dur": "duration",
}  # fmt: skip
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "eq": operator.eq, "ne": operator.ne,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "and": operator.and_, "or": operator.or_,
}  # fmt: skip
_UDFS = {n: tm.udf(f, returns=TYPES[kind]) for n, (f, kind) in UDFS.items()}
_OWN = {n: tm.aggregate(n, **parts) for n, parts in AGGREGATES.items()}


def literal(kind: str, value: Any) -> Any:
    """A constant as Python writes it."""
    if value is None:
        return None
    if kind == "ts":
        return _EPOCH + timedelta(microseconds=value)
    return timedelta(microseconds=value) if kind == "dur" else value


def expression(expr: Any) -> Any:
    name, *args = expr
    if name in ("col", "name"):
        return col[args[0]]
    if name == "lit":
        return tm.lit(literal(*args))
    if name == "cast":
        to, strict, inner = args
        return expression(inner).cast(TYPES[to], strict=strict)
    if name == "udf":
        return _UDFS[args[0]](*map(expression, args[1:]))
    if name == "is_in":
        return expression(args[0]).is_in([literal(k, v) for _, k, v in args[1:]])
    if name == "truncate":
        return expression(args[0]).truncate(timedelta(microseconds=args[1][2]))
    if name in ("round", "contains", "starts_with", "ends_with", "matches", "replace", "substring",
                "find", "split", "list_get"):  # fmt: skip
        return getattr(expression(args[0]), name)(*(a[2] for a in args[1:]))
    values = list(map(expression, args))
    if name in _OPERATORS:
        return _OPERATORS[name](*values)
    if name in ("least", "greatest", "coalesce", "concat"):
        return getattr(tm, name)(*values)
    if name == "if_else":
        return tm.when(values[0]).then(values[1]).otherwise(values[2])
    if name == "neg":
        return -values[0]
    if name == "not":
        return ~values[0]
    method = {"length": "len", "list_length": "list_len"}.get(name, name)
    return getattr(values[0], method)(*values[1:])


def aggregate(spec: dict[str, Any], clock: bool) -> Any:
    f = spec["f"]
    args = [a[1] if a[0] == "name" else expression(a) for a in spec["args"]]
    if f == "hll":
        return tm.distinct_count(*args, method="hll")
    if f == "kll":
        return tm.quantile(*args, spec["q"], method="kll")
    if f == "quantile":
        return tm.quantile(*args, spec["q"])
    if f.startswith("user:"):
        return _OWN[f[5:]](*args)
    options = {n: spec[n] for n in ("ddof", "k", "n") if n in spec}
    if "half_life" in spec:
        options["half_life"] = _duration(spec["half_life"], clock)
    return getattr(tm, f)(*args, **options)


def _duration(ticks: int, clock: bool) -> Any:
    return timedelta(microseconds=ticks) if clock else ticks


def _instant(ticks: int, clock: bool) -> Any:
    return _EPOCH + timedelta(microseconds=ticks) if clock else ticks


def window(spec: dict[str, Any], clock: bool) -> Any:
    kind = spec["kind"]
    clock = clock and not spec.get("on")
    length = {n: _duration(spec[n], clock) for n in ("size", "range", "every", "gap") if n in spec}
    options: dict[str, Any] = {}
    for name in ("origin", "start"):
        if spec.get(name) is not None:
            options[name] = _instant(spec[name], clock)
    if spec.get("on"):
        options["on"] = spec["on"]
    if spec.get("fill"):
        options["fill_empty"] = True
    if spec.get("partition") is not None:
        options["partition_by"] = spec["partition"]
    if spec.get("order_by"):
        options["order_by"] = spec["order_by"]
    if kind == "tumbling":
        return tm.tumbling(length["size"], **options)
    if kind == "hopping":
        return tm.hopping(length["range"], length["every"], **options)
    if kind == "landmark":
        return tm.landmark(length["every"], **options)
    if kind == "rows":
        return tm.rows(spec["range"], spec["every"], **options)
    if kind == "session":
        return tm.session(length["gap"], **options)
    return tm.per_event(length["range"], spec["every"], by=spec["by"], **options)


def build(query: dict[str, Any], *, ordered: bool | None = None) -> Stream:
    """The query. `ordered=True` promises the order of rows, whatever the description says."""
    schema = {n: TYPES[k] for n, k in query["schema"].items()}
    promised = query["ordered"] if ordered is None else ordered
    stream = tm.stream("s", time="t", schema=schema, ordered=promised)
    for step in query["steps"]:
        if step["op"] == "where":
            stream = stream.where(expression(step["pred"]))
        elif step["op"] == "with":
            stream = stream.with_columns(**{n: expression(e) for n, e in step["cols"].items()})
        elif step["op"] == "select":
            cols = {n: expression(e) for n, e in step["cols"].items()}
            stream = stream.select(*step["names"], **cols)
        else:
            clock = stream.schema[stream.plan.time].kind == "timestamp"
            windows = step["windows"]
            named = {w["label"]: window(w, clock) for w in windows} if len(windows) > 1 else {}
            alone = [] if named else [window(windows[0], clock)]
            aggs = {n: aggregate(a, clock) for n, a in step["aggs"].items()}
            stream = stream.group_by(*step["keys"]).window(*alone, **named).agg(**aggs)
    return stream
