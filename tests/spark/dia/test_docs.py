"""The `Example:` lines of docstrings hold, and docs/dia.md has every operation."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from tidemill.spark import dia

PAGE = Path(__file__).parents[3] / "docs" / "dia.md"


def test_the_examples_of_docstrings_hold(spark: Any) -> None:
    texts = [inspect.getdoc(v) or "" for v in (*vars(dia.DIA).values(), dia.generate)]
    examples = [e for t in texts for e in re.findall(r"Example: (.*)", t)]
    assert len(examples) >= 12
    names = {"generate": dia.generate, "spark": spark}
    assert [e for e in examples if eval(e, names) is not True] == []


def test_the_table_has_every_operation() -> None:
    listed = set(re.findall(r"`(\w+)", PAGE.read_text()))
    methods = {n for n, v in vars(dia.DIA).items() if callable(v) and not n.startswith("_")}
    assert methods | {"generate", "read_lines", "read_binary", "from_frame"} <= listed
