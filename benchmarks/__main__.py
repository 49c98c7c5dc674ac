"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import registry, resources
from benchmarks.answers import Mismatch
from benchmarks.docs import write_docs
from benchmarks.harness import FULL, Case, Effort, Result, run_case
from benchmarks.registry import SECONDS, Benchmark, Unit
from benchmarks.report import WIDTH, by_group, document, line, read_results, table, write_json


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a benchmark. 1 where systems disagree or fail, 0 otherwise."""
    options = _parse(arguments)
    console = _console()
    bench = registry.benchmark(options.name)
    try:
        extra = [_asked(bench, text, options.quick) for text in options.ask]
    except ValueError as error:
        console.print(f"--ask: {error}", markup=False)
        return 2
    every = [*extra] if extra and not options.case else [*bench.cases(options.quick), *extra]
    cases = [c for c in every if not options.case or any(part in c.name for part in options.case)]
    if not cases:
        console.print(f"no case of {bench.name} has {options.case} in its name", markup=False)
        return 2
    earlier = read_results(options.json) if options.keep else []
    try:
        results, failures, left = run(cases, bench.quick if options.quick else FULL, console, bench.units)
    finally:
        resources.close()
    by_name = {r.case: r for r in (*earlier, *results)}
    ordered = [by_name[c.name] for c in every if c.name in by_name]
    return _finish(bench, ordered, failures, left, options, console)


def _asked(bench: Benchmark, text: str, quick: bool) -> Case:
    if bench.asked is None:
        raise ValueError(f"{bench.name} has no families of cases")
    return bench.asked(text, quick)


def run(
    cases: Sequence[Case], effort: Effort, console: Console, units: Mapping[str, Unit] = {},
) -> tuple[list[Result], dict[str, str], list[str]]:
    """Results of the cases in which systems agree, what went wrong in others, and which were left out."""
    results: list[Result] = []
    failures: dict[str, str] = {}
    left: list[str] = []
    begin = time.perf_counter()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(cases))
        for position, case in enumerate(cases):
            if time.perf_counter() - begin > effort.last_start:
                left = [c.name for c in cases[position:]]
                console.print(f"left out, to end in time: {', '.join(left)}", markup=False)
                break
            tell = lambda text, name=case.name: progress.update(task, description=f"{name}: {text}")
            try:
                results.append(run_case(case, effort, tell))
                shown = line(results[-1], units.get(case.group, SECONDS))
                console.print(shown, markup=False, highlight=False)
            except Mismatch as error:
                failures[case.name] = f"answers differ\n{error}"
            except Exception:
                failures[case.name] = traceback.format_exc()
            if case.name in failures:
                console.print(f"{case.name}: FAILED: {failures[case.name]}", markup=False)
            progress.advance(task)
    return results, failures, left


def _finish(
    bench: Benchmark, results: Sequence[Result], failures: dict[str, str], left: list[str],
    options: argparse.Namespace, console: Console,
) -> int:  # fmt: skip
    for group, found in by_group(results, bench.titles).items():
        console.print()
        console.print(table(bench.titles.get(group, group), found, bench.unit(group), bench.peers))
    content = document(bench.name, results)
    if options.json:
        write_json(options.json, content)
    if failures:
        names = ", ".join(failures)
        console.print(f"\nfailed, so without times: {names}", style="bold red", markup=False)
        return 1
    if options.docs and left:
        console.print("\nno page: it shows all cases, and some were left out", style="bold red")
        return 1
    if options.docs:
        for path in write_docs(bench, results, content, quick=options.quick):
            console.print(f"wrote {path}", markup=False)
    return 0


def _console() -> Console:
    console = Console()
    # A file or a pipe has no width of its own.
    return console if console.is_terminal else Console(width=WIDTH)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=sorted(registry.MODULES), help="the benchmark to run")
    parser.add_argument(
        "--quick", action="store_true", help="less data, and no case that would start too late"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument(
        "--case", action="append", default=[], metavar="SUBSTRING",
        help="only cases with this in their name; may be given more than once",
    )  # fmt: skip
    parser.add_argument(
        "--ask", action="append", default=[], metavar="TEXT",
        help="a case of a family instead, such as 'windows keys=1e6 zipf=1.1 range=2h every=5m disorder=30'",
    )  # fmt: skip
    parser.add_argument(
        "--keep", action="store_true", help="keep results in --json FILE of cases that are not run"
    )
    parser.add_argument("--docs", action="store_true", help="rewrite its part of its page under docs")
    options = parser.parse_args(arguments)
    if options.keep and not (options.json and options.json.exists()):
        parser.error("--keep needs --json FILE, and the file")
    if options.docs and options.ask:
        parser.error("--docs shows the cases that are listed, none of --ask")
    if options.docs and options.case and not options.keep:
        parser.error("--docs shows all cases: leave --case out, or --keep the others")
    return options


if __name__ == "__main__":
    # Ended from outside, a run still deletes its files and stops Spark.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
