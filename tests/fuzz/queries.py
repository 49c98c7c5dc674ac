"""Random queries as plain data: what `build` makes a Tidemill query of, and the oracle interprets.

{"schema": {name: kind}, "roles": {name: role}, "ordered": bool, "far": bool,
 "nullable": [sets of columns that have nulls],
 "steps": [{"op": "where", "pred": expr}, {"op": "with", "cols": {…}},
           {"op": "select", "names": […], "cols": {…}},
           {"op": "window", "keys": […], "windows": [{"kind": …}], "aggs": {name: {"f": …}}}]}
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.fuzz.expressions import INEXACT, NOW, Schema, random_expr, random_value

Query = dict[str, Any]
SECOND = 1_000_000

BASE: Schema = {
    "t": "int", "n": "int", "u": "int", "k": "int", "s": "str", "x": "float", "v": "int",
    "b": "bool", "w": "ts", "d": "dur",
}  # fmt: skip
ODD = ("a.b", "$row", "$rows", "é", "unit price", "c0", "window_", "_t", "`q`", "a$ends2")


def random_query(pick: Random, *, arrival: bool = True, without: tuple[str, ...] = ()) -> Query:
    """A query; with `arrival=False` one whose answer does not depend on the order of rows.

    Columns of the kinds in `without` are left out.
    """
    # Text files hold no durations; without the column they are among the sources.
    query = _source(pick, ("dur",) if pick.random() < 0.5 else without)
    draw = pick.random()
    if draw < 0.25:
        _projection(pick, query)
    else:
        _windows(pick, query, arrival)
    names = {n for n in query["schema"] if n not in ("t", "n")}
    some = {n for n in sorted(names) if pick.random() < 0.5}
    nullable = pick.choice((names, names, set(), some))
    on = {w.get("on") for s in query["steps"] if s["op"] == "window" for w in s["windows"]}
    if pick.random() < 0.95:  # null in a windowing column is an error
        nullable = nullable - on
    query["nullable"] = sorted(nullable)
    return query


def _source(pick: Random, without: tuple[str, ...]) -> Query:
    schema: Schema = {}
    roles: dict[str, str] = {}
    for role, kind in BASE.items():
        if kind in without:
            continue
        name = role
        if role not in ("t", "n", "u") and pick.random() < 0.03:
            name = pick.choice([o for o in ODD if o not in schema])
            roles[name] = role
        schema[name] = kind
    if pick.random() < 0.4:
        schema["t"] = "ts"
    return {
        "schema": schema, "roles": roles, "steps": [], "far": False,
        "ordered": pick.random() < 0.1,
    }  # fmt: skip


def _projection(pick: Random, query: Query) -> None:
    schema = query["schema"]
    if pick.random() < 0.5:
        query["steps"].append({"op": "where", "pred": random_expr(pick, schema, "bool", 3)})
    kinds = [pick.choice(("int", "float", "str", "bool", "ts", "dur", "strs")) for _ in range(8)]
    cols = {
        f"e{i}": random_expr(pick, schema, k, pick.choice((1, 2, 3))) for i, k in enumerate(kinds)
    }
    query["steps"].append({"op": "select", "names": ["n"], "cols": cols})


def _before(pick: Random, query: Query) -> Schema:
    """Filters and columns before the windows; the schema there."""
    schema = dict(query["schema"])
    for _ in range(pick.choice((0, 0, 0, 1, 1, 2))):
        if pick.random() < 0.5:
            query["steps"].append(
                {"op": "where", "pred": random_expr(pick, schema, "bool", 2, root=False)}
            )
            continue
        kind = pick.choice(("int", "float", "str", "bool"))
        name = f"c{len(query['steps'])}_"
        cols = {name: random_expr(pick, schema, kind, 2, root=False)}
        if pick.random() < 0.7:
            query["steps"].append({"op": "with", "cols": cols})
        else:
            names = [n for n in schema if n != "t" and (n in ("n", "u") or pick.random() < 0.8)]
            query["steps"].append({"op": "select", "names": names, "cols": cols})
            schema = {n: schema[n] for n in ["t", *names]}
        schema[name] = kind
    return schema


def _windows(pick: Random, query: Query, arrival: bool) -> None:
    schema = _before(pick, query)
    keys = pick.choice((["k"], ["k"], [], ["s"], ["k", "s"], ["x"], ["b"], ["w"], ["v", "b"]))
    keys = [_named(query, k) for k in keys]
    keys = [k for k in keys if k in schema]
    made = [n for n in schema if n.endswith("_") and n.startswith("c")]
    if made and pick.random() < 0.5:
        keys = [*keys, pick.choice(made)][:2]
    clock = schema["t"] == "ts"
    windows = random_windows(pick, clock, keys, list(schema), arrival)
    grid = any(w.get("fill") or w["kind"] == "landmark" for w in windows)
    query["far"] = not clock and not grid and pick.random() < 0.2
    step = {"op": "window", "keys": keys, "windows": windows,
            "aggs": random_aggregates(pick, schema, clock, pick.choice((1, 2, 3, 5)))}  # fmt: skip
    query["steps"].append(step)
    if pick.random() < 0.3:
        _after(pick, query, step, schema, clock)


def _named(query: Query, role: str) -> str:
    return next((n for n, r in query["roles"].items() if r == role), role)


def _ticks(pick: Random, clock: bool, low: int, high: int) -> int:
    if not clock:
        return pick.randint(low, high)
    return pick.randint(low, high) * pick.choice((SECOND, SECOND, SECOND, SECOND // 2, SECOND + 1))


def random_windows(
    pick: Random, clock: bool, keys: list[str], columns: list[str], arrival: bool
) -> list[dict[str, Any]]:
    """One window, or several that can be asked together."""
    rows = pick.random() < 0.15
    on = "u" if not rows and "u" in columns and pick.random() < 0.15 else None
    partition: Any = None
    if rows or pick.random() < 0.2:
        partition = pick.choice((None, [], ["k"], ["b"]))
        partition = partition if partition is None or set(partition) <= set(columns) else None
    order = "n" if not arrival or pick.random() < 0.4 else None
    if order and pick.random() < 0.2 and "k" in columns:
        order = "k"
    order = order if order in columns else ("n" if not arrival else None)
    count = pick.choice((1, 1, 1, 1, 2, 3))
    made = []
    for i in range(count):
        if rows:
            window = {"kind": "rows", "range": pick.randint(1, 7), "every": pick.randint(1, 7),
                      "partition": partition, "order_by": order, "fill": pick.random() < 0.2}  # fmt: skip
        else:
            window = _one_window(pick, clock and on is None, partition, order)
            if on:
                window["on"] = on
        window["label"] = f"w{i}"
        made.append(window)
    return made


def _one_window(pick: Random, clock: bool, partition: Any, order: str | None) -> dict[str, Any]:
    kinds = ("tumbling", "hopping", "hopping", "landmark", "per_event", "per_event", "session")
    kind = pick.choice(kinds if partition is None else ("per_event", "session"))
    window: dict[str, Any] = {"kind": kind}
    if kind == "session":
        return {**window, "gap": _ticks(pick, clock, 1, 8), "partition": partition}
    if kind == "per_event":
        every = pick.choice((1, 1, 2, 3))
        by = "rank" if every > 1 and pick.random() < 0.5 else "arrival"
        window |= {
            "range": _ticks(pick, clock, 1, 12),
            "every": every,
            "by": by,
            "partition": partition,
        }
        return {**window, "order_by": None if by == "rank" or every == 1 else order}
    base = NOW if clock else 0
    window["fill"] = pick.random() < 0.2
    if kind == "landmark":
        window["every"] = _ticks(pick, clock, 3, 12)
        window["start"] = base + _ticks(pick, clock, 0, 20) * pick.choice((-1, 1))
        if not clock and pick.random() < 0.2:
            window["start"] = None
        return window
    if kind == "tumbling":
        window["size"] = _ticks(pick, clock, 1, 12)
    else:
        unit = _ticks(pick, clock, 1, 1)
        window["range"], window["every"] = pick.randint(1, 12) * unit, pick.randint(1, 8) * unit
    if pick.random() < 0.3:
        window["origin"] = base + _ticks(pick, clock, 0, 30) * pick.choice((-1, 1))
    if pick.random() < 0.3:
        window["start"] = base + _ticks(pick, clock, 0, 20) * pick.choice((-1, 1))
    return window


# --- aggregates -----------------------------------------------------------------------------------

_ORDERED = ("int", "float", "str", "bool", "ts", "dur")
_NUMBER = ("int", "float")
_TAKES: dict[str, tuple[tuple[str, ...], ...]] = {
    "count": (), "count_if": (("bool",),), "any": (("bool",),), "all": (("bool",),),
    "sum": (("int", "int", "float", "dur"),), "mean": (_NUMBER,), "product": (_NUMBER,),
    "min": (_ORDERED,), "max": (_ORDERED,), "var": (_NUMBER,), "std": (_NUMBER,),
    "covariance": (_NUMBER, _NUMBER), "correlation": (_NUMBER, _NUMBER),
    "first": (_ORDERED,), "last": (_ORDERED,), "arg_min": (_ORDERED, _ORDERED),
    "arg_max": (_ORDERED, _ORDERED), "ewma": (_NUMBER,), "drawdown": (_NUMBER,),
    "quantile": (_NUMBER,), "median": (_NUMBER,), "distinct_count": (_ORDERED,),
    "entropy": (_ORDERED,), "top_k": (_ORDERED,), "bottom_k": (_ORDERED,),
    "top_keys": (_ORDERED,), "collect": (_ORDERED,), "first_k": (_ORDERED,), "last_k": (_ORDERED,),
    "count_by": (_ORDERED,),
    "sum_by": (_NUMBER, _ORDERED), "mean_by": (_NUMBER, _ORDERED), "min_by": (_ORDERED, _ORDERED),
    "max_by": (_ORDERED, _ORDERED), "hll": (("int", "str", "ts"),), "kll": (_NUMBER,),
    "user:rms": (("float",),), "user:mean_log": (("float",),), "user:thirds": (("int",),),
}  # fmt: skip
"""Kinds that each argument may have."""

COMMON = ("count", "sum", "min", "max", "mean", "first", "last")


def random_aggregates(
    pick: Random, schema: Schema, clock: bool, count: int, names: tuple[str, ...] = tuple(_TAKES)
) -> dict[str, Any]:
    found = {}
    for i in range(count):
        f = pick.choice(names if pick.random() < 0.7 else [n for n in COMMON if n in names])
        kinds = [pick.choice(takes) for takes in _TAKES[f]]
        if f == "count" and pick.random() < 0.5:
            kinds = [pick.choice(_ORDERED)]
        args = [_argument(pick, schema, k) for k in kinds]
        if f == "product" and kinds == ["int"] and pick.random() < 0.7:
            args = [["mod", args[0], ["lit", "int", 3]]]
        agg: dict[str, Any] = {"f": f, "args": args, "kinds": kinds}
        if f in ("var", "std", "covariance"):
            agg["ddof"] = pick.choice((0, 1))
        if f == "ewma":
            agg["half_life"] = _ticks(pick, clock, 1, 9)
        if f in ("quantile", "kll"):
            agg["q"] = pick.choice((0, 0.25, 0.3, 0.5, 0.95, 1))
        if f in ("top_k", "bottom_k", "first_k", "last_k"):
            agg["k"] = pick.choice((1, 2, 5))
        if f == "top_keys":
            agg["n"] = pick.choice((1, 2, 5))
        name = f"a{i}" if pick.random() < 0.98 else pick.choice(("$rows", "$ends2", "$row", "a.b"))
        found[name] = agg
    return found


def _argument(pick: Random, schema: Schema, kind: str) -> Any:
    names = [n for n, k in schema.items() if k == kind and n != "t"]
    if names and pick.random() < 0.75:
        return [pick.choice(("col", "col", "name")), pick.choice(names)]
    return random_expr(pick, schema, kind, 2, root=False)


_CHOSEN = ("min", "max", "first", "last", "arg_min", "arg_max")
_EXACT = {"count": "int", "count_if": "int", "any": "bool", "all": "bool", "distinct_count": "int"}


def exact_columns(step: dict[str, Any], schema: Schema, clock: bool) -> Schema:
    """Columns of a window's result that are the same to the last bit on every engine."""
    found = {k: schema[k] for k in step["keys"]}
    on = step["windows"][0].get("on")
    bound = "int" if step["windows"][0]["kind"] == "rows" or on or not clock else "ts"
    found |= {"window_start": bound, "window_end": bound}
    for name, agg in step["aggs"].items():
        f = agg["f"]
        if f in _EXACT:
            found[name] = _EXACT[f]
        elif f in _CHOSEN or (f in ("sum", "product") and agg["kinds"][0] in ("int", "dur")):
            found[name] = agg["kinds"][0]
    return found


def _after(pick: Random, query: Query, step: dict[str, Any], schema: Schema, clock: bool) -> None:
    exact = exact_columns(step, schema, clock)
    draw = pick.random()
    if draw < 0.4:
        pred = random_expr(pick, exact, "bool", 2, root=False)
        query["steps"].append({"op": "where", "pred": pred})
    elif draw < 0.7:
        kind = pick.choice(("int", "str", "bool"))
        cols = {"after": random_expr(pick, exact, kind, 2)}
        query["steps"].append({"op": "with", "cols": cols})
    else:
        later_clock = exact["window_start"] == "ts"
        keys = [pick.choice(step["keys"])] if step["keys"] and pick.random() < 0.6 else []
        windows = random_windows(pick, later_clock, keys, list(exact), arrival=False)
        windows = [w for w in windows if not _counts(w) and "on" not in w][:1]
        if not windows:
            return
        query["steps"].append({
            "op": "window", "keys": keys, "windows": windows,
            "aggs": random_aggregates(pick, exact, later_clock, pick.choice((1, 2))),
        })  # fmt: skip


def _counts(window: dict[str, Any]) -> bool:
    """Whether a window depends on the order of rows."""
    by_arrival = window["kind"] == "per_event" and window["every"] > 1 and window["by"] != "rank"
    return window["kind"] == "rows" or by_arrival or bool(window.get("partition"))


# --- the same shape with other numbers ------------------------------------------------------------


def varied(pick: Random, query: Query) -> Query:
    """The same query with other literals, lengths and origins: what a kernel takes as arguments.

    Kernels that call functions of a user are compiled for each query, so those stay as they are.
    """
    if "'udf'" in repr(query["steps"]) or "'user:" in repr(query["steps"]):
        return query
    clock = query["schema"]["t"] == "ts"

    def change(expr: Any) -> Any:
        if not isinstance(expr, list) or not expr:
            return expr
        if expr[0] == "lit":
            return expr
        if expr[0] in INEXACT or expr[0] in ("add", "sub", "lt", "gt", "le", "ge", "eq", "mul"):
            return [expr[0], *(_other(pick, a) if _is_lit(a) else change(a) for a in expr[1:])]
        return [change(e) for e in expr]

    steps = []
    for step in query["steps"]:
        new = dict(step)
        for part in ("pred", "cols"):
            if part in step:
                new[part] = (
                    change(step[part])
                    if part == "pred"
                    else {n: change(e) for n, e in step[part].items()}
                )
        if "windows" in step:
            new["windows"] = [_resized(pick, w, clock) for w in step["windows"]]
        steps.append(new)
    return {**query, "steps": steps}


def _is_lit(expr: Any) -> bool:
    return isinstance(expr, list) and expr[:1] == ["lit"]


def _other(pick: Random, literal: list[Any]) -> list[Any]:
    return ["lit", literal[1], random_value(pick, literal[1], edges=0.1)]


def _resized(pick: Random, window: dict[str, Any], clock: bool) -> dict[str, Any]:
    new = dict(window)
    for name in ("size", "range", "every", "gap"):
        if name in window and not (window["kind"] == "per_event" and name == "every"):
            new[name] = max(1, window[name] * pick.choice((1, 1, 2, 3)) // pick.choice((1, 1, 2)))
    for name in ("origin", "start"):
        if window.get(name) is not None:
            new[name] = window[name] + _ticks(pick, clock and not window.get("on"), 0, 9)
    return new
