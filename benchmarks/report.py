"""Results as tables and as JSON. Ratios come first."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.harness import HOME, Result
from benchmarks.machine import machine, versions
from benchmarks.registry import SECONDS, Unit
from tidemill.core.files import appearing

WIDTH = 120
"""Columns of a terminal, or a pipe, that tables are made for."""
FASTER = "▼"
"""The mark of a ratio of a peer that is faster than Tidemill."""


def document(name: str, results: Sequence[Result]) -> dict[str, Any]:
    """What `--json` writes."""
    return {
        "benchmark": name,
        "cases": [r.to_json() for r in results],
        "machine": machine(),
        "versions": versions(),
    }


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    with appearing(path, step="benchmark") as file:
        file.write(json.dumps(content, indent=2).encode() + b"\n")


def read_results(path: Path) -> list[Result]:
    """The results that an earlier run wrote."""
    cases = json.loads(path.read_text())["cases"]
    return [
        Result(c["case"], c["params"], c["seconds"], c.get("measured", {}), c.get("queries", {}))
        for c in cases
    ]


def by_group(results: Sequence[Result], titles: Mapping[str, str]) -> dict[str, list[Result]]:
    """Results by group, groups in the order of their titles."""
    groups: dict[str, list[Result]] = {g: [] for g in titles}
    for result in results:
        groups.setdefault(result.group, []).append(result)
    return {g: found for g, found in groups.items() if found}


Cells = tuple[list[str], list[list[str]]]
"""The header and the rows of a table."""


def cells(results: Sequence[Result], unit: Unit = SECONDS, peers: Collection[str] = ()) -> Cells:
    """A row for each case where that is narrow enough to read, one for each system otherwise.

    Ratios come first, then seconds, then the rest. Rows of further systems have no case. The ratio of a peer
    that is faster has a mark.
    """
    header, rows = _a_row_a_case(results, unit, peers)
    widths = [max(map(len, column)) for column in zip(header, *rows)]
    fits = sum(w + 3 for w in widths) < WIDTH
    return (header, rows) if fits else _a_row_a_system(results, unit, peers)


def behind(result: Result, peers: Collection[str]) -> dict[str, float]:
    """The ratios of the peers that are faster than Tidemill."""
    return {s: ratio for s, ratio in result.ratio.items() if s in peers and ratio < 1.0}


def _a_row_a_case(results: Sequence[Result], unit: Unit, marked: Collection[str]) -> Cells:
    systems = _systems(results)
    peers = [s for s in systems if any(s in r.ratio for r in results)]
    extra = _extra(results)
    times = [f"{s} {unit.name}" for s in systems]
    header = ["case", *peers, *times, *(m.replace("_", " ") for m in extra)]
    rows = []
    for r in results:
        row = [_asked(r)]
        row += [_ratio(r, p, marked) for p in peers]
        row += [_seconds(r, s, unit) for s in systems]
        row += [_all(r.measured.get(m, {})) for m in extra]
        rows.append(row)
    return header, rows


def _a_row_a_system(results: Sequence[Result], unit: Unit, marked: Collection[str]) -> Cells:
    extra = _extra(results)
    compared = any(r.ratio for r in results)
    ratio = ["ratio"] if compared else []
    header = ["case", "system", *ratio, unit.name, *(m.replace("_", " ") for m in extra)]
    rows = []
    for r in results:
        for i, system in enumerate(_systems([r])):
            row = ["" if i else _asked(r), system]
            row += [_ratio(r, system, marked)] if compared else []
            row.append(_seconds(r, system, unit))
            found = (r.measured.get(m, {}) for m in extra)
            rows.append(row + [_number(f[system]) if system in f else "" for f in found])
    return header, rows


def table(
    title: str, results: Sequence[Result], unit: Unit = SECONDS, peers: Collection[str] = ()
) -> Table:
    header, rows = cells(results, unit, peers)
    out = Table(title=title, title_justify="left", title_style="bold")
    texts = 2 if header[1:2] == ["system"] else 1
    for i, name in enumerate(header):
        out.add_column(name, justify="left" if i < texts else "right", no_wrap=i < texts)
    for i, row in enumerate(rows):
        if texts == 2 and i and row[0]:
            out.add_section()
        out.add_row(*row)
    return out


def line(result: Result, unit: Unit = SECONDS) -> str:
    """One case in one line, shown as soon as it is done."""
    ratios = ", ".join(f"{r:.3g}× {peer}" for peer, r in result.ratio.items())
    seconds = ", ".join(f"{s} {t * unit.factor:.3g} {unit.name}" for s, t in result.seconds.items())
    rest = ", ".join(f"{m.replace('_', ' ')} {_all(v)}" for m, v in result.measured.items())
    return f"{result.case}: " + "; ".join(p for p in (ratios, seconds, rest) if p)


def shown(params: Mapping[str, Any]) -> str:
    """Parameters in words."""
    return ", ".join(f"{k} {v:,}" if type(v) is int else f"{k} {v}" for k, v in params.items())


def _asked(result: Result) -> str:
    return result.case.split("/", 1)[-1]


def _systems(results: Sequence[Result]) -> list[str]:
    found = dict.fromkeys(s for r in results for s in r.seconds)
    return sorted(found, key=lambda s: s != HOME)


def _extra(results: Sequence[Result]) -> list[str]:
    """What else was measured."""
    return list(dict.fromkeys(m for r in results for m in r.measured if m != "runs"))


def _ratio(result: Result, system: str, marked: Collection[str]) -> str:
    if system not in result.ratio:
        return ""
    mark = f" {FASTER}" if system in behind(result, marked) else ""
    return f"{result.ratio[system]:.3g}×{mark}"


def _seconds(result: Result, system: str, unit: Unit) -> str:
    if system not in result.seconds:
        return ""
    once = "¹" if result.measured.get("runs", {}).get(system) == 1 else ""
    return f"{_number(result.seconds[system] * unit.factor)}{once}"


def _all(found: Mapping[str, Any]) -> str:
    """A measurement of all systems that have it."""
    values = [_number(v) for v in found.values()]
    if len(values) == 1 and HOME in found:
        return values[0]
    return ", ".join(f"{s} {v}" for s, v in zip(found, values))


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
