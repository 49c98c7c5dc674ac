"""Wheels: rows in random splits with advances, saves and merges; ranges and windows against the oracle."""

from __future__ import annotations

import pprint
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import tidemill as tm
from tests.fuzz import sources
from tests.fuzz.build import TYPES, aggregate, build
from tests.fuzz.case import Verdict
from tests.fuzz.compare import difference, same
from tests.fuzz.engines import Failed, Refused, plain, told
from tests.fuzz.expressions import EDGES, NOW, PLAIN
from tests.fuzz.oracle.run import answer
from tests.fuzz.oracle.wheel import RowWheel
from tests.fuzz.queries import SECOND, random_aggregates

SCHEMA = {"t": "int", "k": "int", "s": "str", "x": "float", "v": "int", "b": "bool"}
NUMBERS = (
    "count", "count_if", "any", "all", "sum", "mean", "product", "min", "max", "var", "std",
    "covariance", "correlation", "first", "last", "arg_min", "arg_max", "user:rms",
)  # fmt: skip
"""Aggregates whose partials are a few numbers, and whose arguments are too."""
OBJECTS = (
    *NUMBERS, "quantile", "median", "distinct_count", "entropy", "top_k", "collect", "count_by",
    "sum_by", "mean_by", "user:thirds", "hll", "kll",
)  # fmt: skip


@dataclass(frozen=True)
class WheelCase:
    """A wheel, what happens to it, and what it is asked. `rings` are ticks with what they keep."""

    kind: dict[str, Any]
    script: list[Any]
    ranges: list[tuple[int, int]]
    windows: list[dict[str, Any]]
    engine: str = "wheel"
    how: str = "script"

    def shown(self) -> str:
        parts = {n: getattr(self, n) for n in ("kind", "script", "ranges", "windows")}
        body = "".join(
            f"    {n}={pprint.pformat(v, width=100, sort_dicts=False)},\n" for n, v in parts.items()
        )
        return (
            "from math import inf, nan\n\nfrom tests.fuzz.wheels import WheelCase, check\n\n"
            f"check(WheelCase(\n{body}))"
        )


def random_kind(pick: Random) -> dict[str, Any]:
    """Aggregates, keys, rings and options: what is compiled."""
    clock = pick.random() < 0.3
    schema = {**SCHEMA, "t": "ts" if clock else "int"}
    names = NUMBERS if pick.random() < 0.75 else OBJECTS
    numbers = {n: k for n, k in schema.items() if names is OBJECTS or k != "str"}
    aggs = random_aggregates(pick, numbers, clock, pick.choice((1, 1, 2, 3)), names)
    aggs = {
        f"a{i}": a for i, a in enumerate(aggs.values())
        if not {"ts", "dur"} & set(a["kinds"]) and (names is OBJECTS or "str" not in repr(a))
    }  # fmt: skip
    aggs = aggs or {"a0": {"f": "sum", "args": [["col", "v"]], "kinds": ["int"]}}
    unit = SECOND if clock else 1
    rings = pick.choice(([1, 5, 20], [2, 4, 24], [3], [1, 6, 36]))
    exact = all(
        a["f"] in ("count", "count_if", "sum") and "float" not in a["kinds"] for a in aggs.values()
    )
    options: list[dict[str, Any]] = [{}]
    if names is NUMBERS:
        options += [{"compress": True}, {"prefix": True}] if exact else [{"compress": True}]
    return {
        "schema": schema, "aggs": aggs, "keys": pick.choice(([], ["k"], ["s"], ["k", "s"])),
        "rings": [r * unit for r in rings],
        "retention": pick.choice(("keep", "keep", "drop", 7)),
        "options": pick.choice(options),
        "write_ahead": pick.choice((4, 64)),
    }  # fmt: skip


def random_case(pick: Random, kind: dict[str, Any]) -> WheelCase:
    unit = SECOND if kind["schema"]["t"] == "ts" else 1
    base = NOW if unit > 1 else 0
    nulls = pick.random() < 0.5
    edges = pick.choice((0.0, 0.0, 0.2))
    start = base + pick.randint(-30, 30) * unit
    script: list[Any] = [
        ["start", start],
        *_steps(pick, kind, unit, start, nulls, edges, deep=True),
    ]
    grain = kind["rings"][0]
    last = start + 60 * unit
    ranges = []
    for _ in range(6):
        a = (start + pick.randint(-5 * grain, 40 * unit)) // grain * grain
        ranges.append((a, a + pick.choice((0, 1, 2, 5, 10, 20)) * grain))
    ranges.append((start // grain * grain, last // grain * grain))
    windows = []
    if kind["retention"] == "keep":
        windows = [_window(pick, grain, base)]
    return WheelCase(kind, script, ranges, windows)


def _window(pick: Random, grain: int, base: int) -> dict[str, Any]:
    name = pick.choice(("tumbling", "hopping", "landmark"))
    at = (
        {"origin": base // grain * grain + pick.randint(-9, 9) * grain}
        if pick.random() < 0.4
        else {}
    )
    if name == "tumbling":
        return {"kind": name, "size": pick.randint(1, 6) * grain, **at}
    if name == "hopping":
        return {
            "kind": name,
            "range": pick.randint(1, 8) * grain,
            "every": pick.randint(1, 6) * grain,
            **at,
        }
    start = base // grain * grain + pick.randint(-30, 9) * grain
    return {"kind": name, "every": pick.randint(2, 6) * grain, "start": start}


def _steps(
    pick: Random,
    kind: dict[str, Any],
    unit: int,
    now: int,
    nulls: bool,
    edges: float,
    *,
    deep: bool,
) -> list[Any]:
    made: list[Any] = []
    for _ in range(pick.randint(1, 6)):
        draw = pick.random()
        if draw < 0.55:
            rows = [
                _row(pick, kind["schema"], now, unit, nulls, edges)
                for _ in range(pick.randint(0, 12))
            ]
            made.append(
                ["insert", rows, pick.choice(("table", "dicts", "chunked", "large_string"))]
            )
        elif draw < 0.85:
            now += pick.choice((0, 1, 3, 8, 26)) * unit
            made.append(["advance", now])
        elif draw < 0.93:
            made.append(["save"])
        elif deep:
            other = now + pick.randint(-9, 9) * unit
            made.append(["merge", [["start", other], *_steps(
                pick, kind, unit, other, nulls, edges, deep=False)]])  # fmt: skip
    made.append(["advance", now + pick.choice((0, 5, 40)) * unit])
    return made


def _row(
    pick: Random, schema: dict[str, str], now: int, unit: int, nulls: bool, edges: float
) -> Any:
    row: dict[str, Any] = {"t": now + pick.randint(-6 * unit, 40 * unit)}
    row["k"] = pick.randint(0, 2)
    row["s"] = pick.choice(("a", "b", "", "é"))
    row["v"] = pick.randint(-5, 9)
    row["b"] = pick.random() < 0.5
    row["x"] = pick.choice(EDGES["float"] if pick.random() < edges else PLAIN["float"])
    if nulls:
        row |= {n: None for n in ("k", "s", "v", "b", "x") if pick.random() < 0.2}
    return {n: row[n] for n in schema}


# --- playing --------------------------------------------------------------------------------------


def play(case: WheelCase, script: list[Any], folder: Path) -> tuple[Any, RowWheel]:
    """The same to a wheel and to the oracle."""
    kind = case.kind
    clock = kind["schema"]["t"] == "ts"
    [[_, start], *steps] = script
    grain = kind["rings"][0]
    aggs = {n: aggregate(a, clock) for n, a in kind["aggs"].items()}
    lengths = [_length(r, clock) for r in kind["rings"]]
    wheel = tm.Wheel(
        aggs, schema={n: TYPES[k] for n, k in kind["schema"].items()}, time="t", start=start,
        keys=kind["keys"], granularities=lengths, retention=kind["retention"],
        write_ahead=kind["write_ahead"], **kind["options"],
    )  # fmt: skip
    rows = RowWheel(kind["aggs"], kind["keys"], grain, start // grain * grain)
    for n, (what, *given) in enumerate(steps):
        if what == "insert":
            whole = sources.table(given[0], kind["schema"])
            wheel.insert(sources.SOURCES[given[1]](Random(n), whole, folder))
            rows.insert(given[0])
        elif what == "advance":
            wheel.advance_to(given[0])
            rows.advance_to(given[0])
        elif what == "save":
            path = folder / f"wheel{n}-{len(list(folder.iterdir()))}"
            wheel.save(path)
            own = {n: a for n, a in aggs.items() if kind["aggs"][n]["f"].startswith("user:")}
            wheel = tm.open_wheel(path, aggregates=aggs if own else None)
        else:
            other, others = play(case, given[0], folder)
            wheel.merge(other)
            rows.merge(others)
    return wheel, rows


def _length(ticks: int, clock: bool) -> Any:
    from datetime import timedelta

    return timedelta(microseconds=ticks) if clock else ticks


def verdict(case: WheelCase) -> Verdict:
    """The ranges for every key, and the windows."""
    kind = case.kind
    try:
        with tempfile.TemporaryDirectory(prefix="tidemill-fuzz-") as folder, told():
            wheel, rows = play(case, case.script, Path(folder))
            text = _ranges(case, wheel, rows) or _windows(case, wheel, rows)
            if (
                text is None
                and wheel.stats()["left out"]["late"] != len(rows.late)
                and not _merged(case)
            ):
                text = f"late: {wheel.stats()['left out']['late']}, expected {len(rows.late)}"
            return Verdict(text, values=len(case.ranges) * len(kind["aggs"]))
    except Refused:
        return Verdict(counted=False)
    except Failed as failed:
        return Verdict(f"failed: {failed}")
    except Exception as foreign:
        return Verdict(f"raised {type(foreign).__name__}: {foreign}")


def _merged(case: WheelCase) -> bool:
    return any(step[0] == "merge" for step in case.script)


def _ranges(case: WheelCase, wheel: Any, rows: RowWheel) -> str | None:
    names = list(case.kind["aggs"])
    keys = rows.known_keys() if rows.keys else [()]
    for a, b in case.ranges:
        for key in keys:
            asked = {"key": key[0] if len(key) == 1 else key} if rows.keys else {}
            try:
                got = wheel.query(a, b, **asked)
            except tm.UserError:
                if case.kind["retention"] == "keep":
                    raise
                continue  # slots were dropped
            got = got if len(names) > 1 else {names[0]: got}
            expected = rows.query(a, b, key)
            if not all(same(got[n], expected[n]) for n in names):
                return f"[{a}, {b}) of {key}:\n  expected {expected}\n  came     {got}"
    return None


def as_query(case: WheelCase) -> dict[str, Any]:
    """The same aggregates over windows, as a query that takes the wheel in place of rows."""
    step = {"op": "window", "keys": case.kind["keys"][::-1], "aggs": case.kind["aggs"],
            "windows": [{**w, "label": f"w{i}"} for i, w in enumerate(case.windows)]}  # fmt: skip
    return {"schema": case.kind["schema"], "roles": {}, "ordered": False, "steps": [step]}


def _windows(case: WheelCase, wheel: Any, rows: RowWheel) -> str | None:
    if not case.windows:
        return None
    query = as_query(case)
    expected = answer(query, rows.complete())
    assert expected.rows is not None
    try:
        got = plain(build(query).run(s=wheel))
    except tm.UserError:
        if any(e["f"].startswith("user:") for e in case.kind["aggs"].values()):
            return None  # functions of an opened wheel are other functions
        raise
    return difference(got, expected.rows)


def differs(case: WheelCase) -> str | None:
    try:
        return verdict(case).difference
    except Exception:
        return None


def check(case: WheelCase) -> None:
    found = verdict(case).difference
    assert found is None, found


# --- shrinking ------------------------------------------------------------------------------------


def smaller(case: WheelCase) -> list[WheelCase]:
    """Candidates: fewer steps, rows, ranges, aggregates."""
    made = []
    if case.windows:
        made += [replace(case, windows=[]), replace(case, ranges=[])]
    made += [replace(case, ranges=[r]) for r in case.ranges if len(case.ranges) > 1]
    aggs = case.kind["aggs"]
    if len(aggs) > 1:
        made += [replace(case, kind={**case.kind, "aggs": {n: a}}) for n, a in aggs.items()]
    for at in range(1, len(case.script)):
        made.append(replace(case, script=case.script[:at] + case.script[at + 1 :]))
        step = case.script[at]
        if step[0] == "insert" and step[1]:
            rows, half = step[1], max(1, len(step[1]) // 2)
            for kept in (
                rows[:half],
                rows[half:],
                *(rows[:i] + rows[i + 1 :] for i in range(len(rows))),
            ):
                if len(kept) < len(rows):
                    changed = [*case.script[:at], ["insert", kept, step[2]], *case.script[at + 1 :]]
                    made.append(replace(case, script=changed))
    return made
