"""Users' functions are known by their content, and their machine code by it."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from tidemill.jit.function_content import NoContentError, named_by_content, uncached
from tidemill.jit.sources import GENERATED

ROOT = Path(__file__).resolve().parents[2]


def content(function: Any) -> str:
    copy = named_by_content(function, lambda f: f)
    return str(copy.__globals__[GENERATED])


def scaled(by: Any) -> Callable[[Any], Any]:
    return lambda x: x * by


def test_equal_text_over_equal_values_is_equal_wherever_it_stands() -> None:
    again = lambda x: x + 1
    other = lambda x: x + 1
    assert content(again) == content(other)
    assert content(scaled(2)) == content(scaled(2))


@pytest.mark.parametrize(
    ("one", "other"),
    [(2, 3), (1, 1.0), (1, True), (0.0, -0.0), (math.nan, 0.0), ("1", 1), (None, 0), ((1, 2), (1, 3)),
     ((1, (2,)), (1, 2)), (np.int64(1), 1), (np.float32(1), np.float64(1))],
)  # fmt: skip
def test_equal_text_over_other_values_is_not_equal(one: Any, other: Any) -> None:
    assert content(scaled(one)) != content(scaled(other))


def test_an_edited_function_is_another_one() -> None:
    forms: list[Callable[..., Any]] = [
        lambda x: x + 1, lambda x: x + 2, lambda x: x - 1, lambda y: y + 1, lambda x, y=1: x + 1,
        lambda x, y=2: x + 1, lambda x: abs(x), lambda x: max(x, 1), lambda x: math.sqrt(x),
        lambda x: math.exp(x), lambda x: (lambda y: y + 1)(x), lambda x: (lambda y: y + 2)(x),
    ]  # fmt: skip
    assert len({content(f) for f in forms}) == len(forms)


def test_functions_that_are_called_are_part_of_it() -> None:
    def calling(helper: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: helper(x) + 1

    def around(helper: Callable[[Any], Any]) -> Any:
        return calling(calling(helper))

    assert content(around(scaled(2))) == content(around(scaled(2)))
    assert content(around(scaled(2))) != content(around(scaled(3)))


def test_globals_are_those_of_the_moment() -> None:
    space: dict[str, Any] = {"factor": 2}
    exec("def scale(x):\n    return x * factor", space)
    copy, before = named_by_content(space["scale"], lambda f: f), content(space["scale"])
    space["factor"] = 3
    assert copy(10) == 20
    assert content(space["scale"]) != before


def itself(n: int) -> int:
    return 1 if n < 2 else n * itself(n - 1)


@numba.njit  # type: ignore[untyped-decorator]
def decorated(x: float) -> float:
    return x


TABLE, ARRAY = [1, 2], np.ones(2)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda i: TABLE[i], "TABLE is a list, which may change"),
        (lambda i: ARRAY[i], "ARRAY is a ndarray, which may change"),
        (lambda x: json.dumps(x), "it uses the module json"),
        (lambda x: decorated(x), "decorated is compiled by Numba already; leave its decorator out"),
        (lambda x: undefined + x, "the global undefined is not defined"),  # type: ignore[name-defined]  # noqa: F821
        (lambda x: Path(x), "Path is of another library"),
        (lambda x, seen=[]: x, "a default is a list, which may change"),
        (itself, "itself calls itself"),
        (math.sqrt, "sqrt is not a Python function"),
        (len, "len is not a Python function"),
    ],
)  # fmt: skip
def test_what_cannot_be_told_is_said(function: Any, why: str) -> None:
    assert uncached(function) == why
    with pytest.raises(NoContentError):
        named_by_content(function, lambda f: f)


def test_a_function_without_source_has_content_too() -> None:
    assert uncached(eval("lambda x: x + 1")) == ""


SCRIPT = """
import json, math, sys
import numpy as np
import tidemill as tm
from tests import compiling
from tidemill.codegen.algebra import record_type
from tidemill.codegen.fold import fold_kernel
from tidemill.kernels.texts import Texts
from tidemill.codegen.state_plan import plan_states

compiling.listen()


def bent(x, by):
    return x * by if x > 0.0 else math.sqrt(-x)


def folded(by):
    own = tm.aggregate(
        "own", identity=lambda: 0.0, lift=lambda x: bent(x, by), combine=lambda a, b: a if a > b else b,
        lower=lambda s: s + by if s > 0.0 else s, empty=0.0,
    )
    stream = tm.stream("s", time="t", schema={"t": "int64", "x": "float64"})
    layout = stream.window(tm.tumbling(2)).agg(r=own("x")).optimized.layout
    parts = plan_states(layout)
    assert parts.records == (0,), parts
    elements = np.zeros(2, dtype=record_type(layout, parts.fixed))
    elements["s0_0"] = [1.0, 5.0]
    low, high, out, valid = np.array([0]), np.array([2]), np.zeros(1), np.zeros(1, dtype=np.uint8)
    fold_kernel(layout, parts.fixed, ("merge",), (0,)).run(
        1, low, high, 0, elements, elements[:0], Texts().table, out, valid
    )
    users = [c for c in compiling.taken() if c["generated"] or "tidemill_function" in c["kernel"]]
    return out[0], sorted(c["kernel"].rpartition(".")[2] for c in users)


print(json.dumps([folded(float(by)) for by in sys.argv[1:]]))
"""


def test_another_process_loads_what_one_compiled(tmp_path: Path) -> None:
    def process(*factors: int) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *map(str, factors)], capture_output=True, text=True, check=True,
            env={**os.environ, "TIDEMILL_CACHE": str(tmp_path), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        )  # fmt: skip
        return json.loads(done.stdout)

    compiled = ["<lambda>", "<lambda>", "<lambda>", "<lambda>", "bent", "run"]
    assert process(2) == [[7.0, compiled]]
    loaded, other = process(2, 3)
    assert loaded == [7.0, []]
    # What does not depend on the other factor is not compiled again.
    assert other == [8.0, ["<lambda>", "<lambda>", "<lambda>", "run"]]
