"""Results as tables and as JSON. Ratios come first."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.harness import HOME, Result
from benchmarks.machine import machine, versions


def document(name: str, results: Sequence[Result]) -> dict[str, Any]:
    """What `--json` writes."""
    return {
        "benchmark": name,
        "cases": [r.to_json() for r in results],
        "machine": machine(),
        "versions": versions(),
    }


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(content, indent=2) + "\n")
    os.replace(temporary, path)


def read_results(path: Path) -> list[Result]:
    """The results that an earlier run wrote."""
    cases = json.loads(path.read_text())["cases"]
    return [Result(c["case"], c["params"], c["seconds"], c.get("measured", {})) for c in cases]


def by_group(results: Sequence[Result], titles: Mapping[str, str]) -> dict[str, list[Result]]:
    """Results by group, groups in the order of their titles."""
    groups: dict[str, list[Result]] = {g: [] for g in titles}
    for result in results:
        groups.setdefault(result.group, []).append(result)
    return {g: found for g, found in groups.items() if found}


def cells(results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of a table: ratios, then seconds, then the rest."""
    systems = list(dict.fromkeys(s for r in results for s in r.seconds))
    systems.sort(key=lambda s: s != HOME)
    peers = [s for s in systems if any(s in r.ratio for r in results)]
    extra = list(dict.fromkeys(m for r in results for m in r.measured if m != "runs"))
    header = ["case", *peers, *(f"{s} s" for s in systems), *(m.replace("_", " ") for m in extra)]
    rows = []
    for r in results:
        row = [r.case.split("/", 1)[-1]]
        row += [f"{r.ratio[p]:.3g}×" if p in r.ratio else "" for p in peers]
        row += [_seconds(r, s) for s in systems]
        row += [_extra(r.measured.get(m, {})) for m in extra]
        rows.append(row)
    return header, rows


def table(title: str, results: Sequence[Result]) -> Table:
    header, rows = cells(results)
    out = Table(title=title, title_justify="left", title_style="bold")
    for i, name in enumerate(header):
        out.add_column(name, justify="right" if i else "left", no_wrap=i == 0)
    for row in rows:
        out.add_row(*row)
    return out


def line(result: Result) -> str:
    """One case in one line, shown as soon as it is done."""
    ratios = ", ".join(f"{r:.3g}× {peer}" for peer, r in result.ratio.items())
    seconds = ", ".join(f"{s} {t:.3g} s" for s, t in result.seconds.items())
    rest = ", ".join(f"{m.replace('_', ' ')} {_extra(v)}" for m, v in result.measured.items())
    return f"{result.case}: " + "; ".join(p for p in (ratios, seconds, rest) if p)


def shown(params: Mapping[str, Any]) -> str:
    """Parameters in words."""
    return ", ".join(f"{k} {v:,}" if type(v) is int else f"{k} {v}" for k, v in params.items())


def _seconds(result: Result, system: str) -> str:
    if system not in result.seconds:
        return ""
    once = "¹" if result.measured.get("runs", {}).get(system) == 1 else ""
    return f"{result.seconds[system]:.3g}{once}"


def _extra(found: Mapping[str, Any]) -> str:
    values = [f"{v:,}" if isinstance(v, int) else f"{v:.3g}" for v in found.values()]
    if len(values) == 1 and HOME in found:
        return values[0]
    return ", ".join(f"{s} {v}" for s, v in zip(found, values))
