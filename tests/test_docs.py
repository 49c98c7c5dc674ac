"""Pages name files that exist, and CONTRIBUTING shows the tree as it is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import tidemill as tm
from tests.test_layers import API, LAYERS, PACKAGE

ROOT = PACKAGE.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MACHINES = ROOT / "tests" / "faults"

PATH = re.compile(r"`(\w[\w./*-]*(?:\.(?:py|md)|/))`")
"""What a page names in backticks: a file of ours, or a folder with a slash at its end."""
NOT_OURS = {"job.py", "utils.py"}
"""A file of a reader's, and one that must not be."""


def named(page: Path) -> set[str]:
    return set(PATH.findall(page.read_text())) - NOT_OURS


def exists(name: str) -> bool:
    bases = (ROOT, PACKAGE, ROOT / "docs", ROOT / "tests", MACHINES, PACKAGE / "spark" / "exchange")
    return any(next(iter(base.glob(name.rstrip("/"))), None) is not None for base in bases)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    assert sorted(name for name in named(page) if not exists(name)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[\w-]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def tree() -> list[list[str]]:
    """The names of each line of the tree in CONTRIBUTING, of folders without the slash."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    block = text.split("src/tidemill/\n")[1].split("```")[0]
    names = [line[2:].split("  ")[0].split() for line in block.splitlines() if line.startswith("  ")]
    return [[name.removesuffix(".py").rstrip("/") for name in line] for line in names]


def test_the_tree_has_the_layers_in_their_order() -> None:
    there = {p.stem for p in PACKAGE.iterdir() if p.is_dir() or p.suffix == ".py"} - {"__pycache__"}
    layers = [[unit for unit in layer if unit in there] for layer in LAYERS]
    shown = [[name for name in line if name in there] for line in tree()]
    assert [set(line) for line in shown if line] == [set(layer) for layer in layers if layer]
    assert {name for line in tree() for name in line} >= there


def test_what_is_to_come_is_said_to_be() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for line in text.split("src/tidemill/\n")[1].split("```")[0].splitlines():
        folders = re.findall(r"(\w+)/", line.split("  ", 2)[1] if line.startswith("  ") else "")
        missing = [f for f in folders if not (PACKAGE / f).is_dir()]
        assert not missing or "to come" in line, line
    assert set(API) <= {name for line in tree() for name in line}


def test_the_page_about_lifetimes_names_every_operator() -> None:
    page = ROOT / "docs" / "temporal.md"
    named = set(re.findall(r"\.(\w+)\(", page.read_text())) | {"interval_join", "last_join"}
    operators = [n for n, v in vars(tm.Stream).items() if not n.startswith("_") and callable(v)]
    assert {*operators, "apply", "reduce"} - {"left_out"} <= named


def test_the_page_about_interval_joins_names_every_option() -> None:
    page = ROOT / "docs" / "intervals.md"
    for method in (tm.Stream.interval_join, tm.Stream.last_join):
        options = set(inspect.signature(method).parameters) - {"self", "probe", "on"}
        assert [o for o in options if not re.search(rf"`{o}\b", page.read_text())] == []


def test_the_page_about_feature_sets_names_every_method() -> None:
    page = ROOT / "docs" / "features.md"
    methods = {n for n, v in vars(tm.FeatureSet).items() if not n.startswith("_") and callable(v)}
    assert methods - {"live"} <= set(re.findall(r"(\w+)\(", page.read_text()))


def test_the_examples_of_queries_on_lifetimes_run(capsys: pytest.CaptureFixture[str]) -> None:
    from examples import temporal_orders, temporal_searches

    temporal_searches.main()
    said = capsys.readouterr().out
    assert "39 rows live, 39 from history, the same" in said and "at most 19 sessions" in said
    temporal_orders.main()
    said = capsys.readouterr().out
    assert "203 rows" in said and "live, 194 rows of shares came with the orders, and 9 at the end" in said


@pytest.mark.interpreted
def test_the_example_of_features_that_are_served_runs(capsys: pytest.CaptureFixture[str]) -> None:
    from examples import serve_features

    serve_features.main()
    assert "the training set says the same: True" in capsys.readouterr().out
