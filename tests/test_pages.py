"""Every block of Python in README and docs runs as it stands, in order."""

from __future__ import annotations

import code
import contextlib
import doctest
import io
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

pytestmark = pytest.mark.interpreted


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


WITH_BLOCKS = [page for page in PAGES if blocks(page)]
ON_SPARK = [page for page in WITH_BLOCKS if any(re.search(r"\bspark\b", b) for b in blocks(page))]
IN_PROCESS = [page for page in WITH_BLOCKS if page not in ON_SPARK]


def run(page: Path, names: dict[str, Any]) -> None:
    """Run the blocks of a page one after the other; those with prompts print what is below these."""
    for number, block in enumerate(blocks(page), 1):
        where = f"{page.name}, block {number}"
        if ">>> " in block:
            test = doctest.DocTestParser().get_doctest(block, names, where, str(page), 0)
            said = io.StringIO()
            failed, _ = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.write, clear_globs=False)
            assert not failed, said.getvalue()
            names = test.globs
        else:
            exec(compile(block, where, "exec"), names)


@pytest.mark.parametrize("page", IN_PROCESS, ids=lambda page: page.name)
def test_every_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(page, {})


@pytest.mark.parametrize("page", ON_SPARK, ids=lambda page: page.name)
def test_every_block_runs_with_spark(
    page: Path, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(page, {"spark": spark})


def test_the_first_screen_can_be_pasted_at_a_prompt() -> None:
    names: dict[str, Any] = {}
    console, said = code.InteractiveConsole(names), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        for line in [*blocks(ROOT / "README.md")[0].splitlines(), ""]:
            console.push(line)
    assert "Error" not in said.getvalue() and "window_start" in said.getvalue()
    assert names["table"].num_rows > 1000
