"""Pages under `docs`: tables and plots of the last run, between markers. Nobody types numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Result
from benchmarks.machine import ROOT
from benchmarks.registry import Benchmark
from benchmarks.report import FASTER, behind, by_group, cells, shown
from tidemill.core.files import appearing

FOLDER = ROOT / "docs"
ONCE = "¹ ran once: it took longer than a system's budget for repeats."


def write_docs(
    bench: Benchmark, results: Sequence[Result], content: Mapping[str, Any], *, quick: bool,
    page: Path | None = None,
) -> list[Path]:  # fmt: skip
    """Rewrite the part of the page that belongs to a benchmark, and its plots."""
    page = page or FOLDER / bench.page
    plots = _draw(bench, results, page.with_suffix(""))
    text = _section(bench, results, content, plots, quick=quick)
    old = page.read_text() if page.exists() else "# Benchmarks\n"
    with appearing(page, step="benchmark") as file:
        file.write(replaced(old, bench.name, text).encode())
    return [page, *plots]


def replaced(page: str, name: str, text: str) -> str:
    """The page with the text between the markers of `name` replaced, or added at the end.

    >>> print(replaced("# Page", "x", "new"))
    # Page
    <BLANKLINE>
    <!-- benchmark x: written by python -m benchmarks x --docs -->
    new
    <!-- end of benchmark x -->
    <BLANKLINE>
    """
    begin = f"<!-- benchmark {name}: written by python -m benchmarks {name} --docs -->"
    end = f"<!-- end of benchmark {name} -->"
    block = f"{begin}\n{text}\n{end}"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if pattern.search(page):
        return pattern.sub(lambda _: block, page)
    return f"{page.rstrip()}\n\n{block}\n"


def _section(
    bench: Benchmark, results: Sequence[Result], content: Mapping[str, Any],
    plots: Sequence[Path], *, quick: bool,
) -> str:  # fmt: skip
    machine, versions = content["machine"], content["versions"]
    command = f"python -m benchmarks {bench.name}{' --quick' if quick else ''} --docs"
    out = [
        f"## {bench.name}\n",
        f"`{command}` on {machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"{machine['system']}; " + ", ".join(f"{n} {v}" for n, v in versions.items()) + ".\n",
        "A ratio, such as 2×, says how many times as long as Tidemill a system took. "
        f"{FASTER} marks a peer that is faster.\n",
    ]
    if late := _behind(bench, results):
        out += ["### Where Tidemill is behind\n", *late, ""]
    for group, found in by_group(results, bench.titles).items():
        out.append(f"### {bench.titles.get(group, group)}\n")
        header, rows = cells(found, bench.unit(group), bench.peers)
        texts = [h for h in header[:2] if h in ("case", "system")]
        out.append(_row([header[0], "parameters", *header[1:]]))
        out.append(_row([*["---"] * (len(texts) + 1), *["---:"] * (len(header) - len(texts))]))
        params = iter(found)
        for row in rows:
            out.append(_row([row[0], shown(next(params).params) if row[0] else "", *row[1:]]))
        if any("¹" in c for row in rows for c in row):
            out.append(f"\n{ONCE}")
        out.append("")
        out += _queries(found)
    out += [f"![{p.stem.replace('-', ' ')}]({p.parent.name}/{p.name})\n" for p in plots]
    return "\n".join(out).rstrip()


def _behind(bench: Benchmark, results: Sequence[Result]) -> list[str]:
    """A line for each case in which a peer is faster."""
    found = ((r, behind(r, bench.peers)) for r in results)
    return [
        f"- {r.case}: " + ", ".join(f"{system} {ratio:.3g}×" for system, ratio in ahead.items())
        for r, ahead in found
        if ahead
    ]


def _queries(results: Sequence[Result]) -> list[str]:
    """The queries that ran, each once, with the cases that have them."""
    cases: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for r in results:
        if r.queries:
            cases.setdefault(tuple(r.queries.items()), []).append(r.case.split("/", 1)[-1])
    if not cases:
        return []
    out = ["<details><summary>Queries, as they ran</summary>\n"]
    for queries, names in cases.items():
        out.append(f"**{'; '.join(names)}**\n")
        for system, text in queries:
            out.append(f"{system}:\n\n```text\n{text}\n```\n")
    return [*out, "</details>\n"]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(c.replace('|', chr(92) + '|') for c in cells)} |"


def _draw(bench: Benchmark, results: Sequence[Result], folder: Path) -> list[Path]:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    made = []
    if bench.plots:
        folder.mkdir(parents=True, exist_ok=True)
    for name, draw in bench.plots.items():
        figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
        if draw(axes, results):
            path = folder / f"{bench.name}-{name}.png"
            with appearing(path, step="benchmark") as file:
                figure.savefig(file, dpi=110, format="png", metadata={"Software": None})
            made.append(path)
        plt.close(figure)
    return made
