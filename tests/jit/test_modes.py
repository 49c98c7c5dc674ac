"""Queries on few rows do not wait for the compiler, and their answers are those of compiled kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tests import interpreter
from tests.conformance.harness import same
from tidemill import col
from tidemill.codegen.modules import load
from tidemill.core.errors import UserError
from tidemill.jit import background, modes
from tidemill.jit.kernel import Kernel

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import json, sys
import tidemill as tm
from tidemill import col
s = tm.stream("s", time="t", schema={"t": "int64", "k": "string", "x": "float64"})
rows = [{"t": t, "k": "ab"[t % 2], "x": t / 2} for t in range(100)]
hops = s.where(col.x < 40).group_by("k").window(tm.hopping(20, every=10))
asked = hops.agg(n=tm.count(), x=tm.median(col.x))
answer = asked.run(s=rows).to_pydict()
doubled = s.select("t", y=tm.udf(lambda x: 2 * x, returns="float64")(col.x)).run(s=rows)["y"].to_pylist()
with open(sys.argv[1], "w") as file:
    print("t,x", *(f"{t},{t / 2}" for t in range(100)), sep="\\n", file=file)
read = tm.read(sys.argv[1], time="t").window(tm.tumbling(50)).agg(x=tm.sum("x")).run()["x"].to_pylist()
print(json.dumps([answer, doubled, read, "numba" in sys.modules]))
"""


def answered(tmp_path: Path, how: str) -> Any:
    env = {**os.environ, "TIDEMILL_CACHE": str(tmp_path), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "file.csv")],
        env={**env, "TIDEMILL_KERNELS": how}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_first_query_on_few_rows_does_not_load_the_compiler(tmp_path: Path) -> None:
    *answers, loaded = answered(tmp_path, "auto")
    assert not loaded and not (tmp_path / "machine").exists()
    assert [*answers, True] == answered(tmp_path, "compiled")
    assert (tmp_path / "machine").exists()


def test_a_word_that_says_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="TIDEMILL_KERNELS: expected compiled, plain or auto, got fast"):
        answered(tmp_path, "fast")


SOURCE = """
@kernel
def run(x):
    total = 0
    for i in range(x.size):
        total = wrap_add(total, x[i])
    return total
"""


def test_arrays_that_are_not_small_are_compiled_and_a_long_query_is() -> None:
    run: Kernel = load(SOURCE + "# many\n").run
    with interpreter.as_for_users():
        assert list(modes.on_few_rows(run(np.arange(4)) for _ in range(2))) == [6, 6]
        assert run.called == 2 and run._ready is None
        many = np.ones(modes.ELEMENTS + 1, np.int64)
        assert list(modes.on_few_rows(run(many) for _ in range(1))) == [len(many)]
        assert run._ready is not None
    run = load(SOURCE + "# long\n").run

    def long() -> Any:
        yield run(np.arange(4))
        modes.spend(modes.SECONDS)
        yield run(np.arange(4))

    with interpreter.as_for_users():
        assert list(modes.on_few_rows(long())) == [6, 6]
        assert run.called == 1 and run._ready is not None
        run(np.arange(4))
    assert run.called == 1


def test_what_runs_again_and_again_is_compiled_in_the_background() -> None:
    run: Kernel = load(SOURCE + "# again\n").run
    x = np.arange(20_000)
    with interpreter.as_for_users():
        before = run.called
        while run._ready is None:
            assert list(modes.on_few_rows(run(x) for _ in range(1))) == [199_990_000]
            if run.called - before > 1000:
                background.wait()
        called = run.called
        assert list(modes.on_few_rows(run(x) for _ in range(1))) == [199_990_000]
        assert run.called == called
        # What is not contiguous has a type of its own, which is compiled as well.
        for _ in range(3):
            assert list(modes.on_few_rows(run(x[::2]) for _ in range(1))) == [99_990_000]
        background.wait()
        called = run.called
        assert list(modes.on_few_rows(run(x[::2]) for _ in range(1))) == [99_990_000]
        assert run.called == called
        # Other types are not compiled yet.
        assert list(modes.on_few_rows(run(np.ones(3, np.int32)) for _ in range(1))) == [3]
        assert run.called == called + 1


ROWS = pa.table(
    {
        "t": pa.array(range(200)), "k": ["a", None, "c", "a"] * 50,
        "x": [float("nan"), 1.5, None, -0.0] * 50, "i": [7, -3, 0, (1 << 62) // 25] * 50,
    }
)  # fmt: skip
S = tm.stream("s", time="t", schema={"t": "int64", "k": "string", "x": "float64", "i": "int64"})


def _ignored(kernel: Kernel, made: Any) -> None:
    """No kernel becomes machine code."""


def halved(x: float) -> float:
    return x / 2



ASKED = {
    "filter": S.where((col.i % 5 != 2) | col.k.is_null()),
    "tumbling": S.group_by("k").window(tm.tumbling(30)).agg(n=tm.count(), x=tm.max(col.x), i=tm.min(col.i)),
    "hopping": S.window(tm.hopping(40, every=10)).agg(x=tm.quantile(col.x, 0.3), d=tm.distinct_count(col.k)),
    "sessions": S.where(col.i > 0).group_by("k").window(tm.session(3)).agg(x=tm.last(col.x), i=tm.var(col.i)),
    "rows": S.group_by("k").window(tm.rows(7, every=2)).agg(x=tm.mean(col.x), e=tm.entropy(col.i)),
    "events": S.group_by("k").window(tm.per_event(9)).agg(x=tm.sum(col.x), m=tm.arg_max(col.k, col.i)),
    "lifetimes": S.lasting(5).group_by("k").agg(n=tm.count(), x=tm.min(col.x)),
    "join": S.lasting(3).join(S.where(col.i == 0), on="k"),
    "interval join": S.interval_join(S.where(col.i == 7), on="k", preceding=20).agg(n=tm.count()),
    "user": S.select("t", y=tm.udf(halved, returns="float64")(col.x)),
    "overflow": S.agg(i=tm.sum(col.i)),
}


@pytest.mark.compiled
@pytest.mark.parametrize("name", ASKED)
def test_answers_are_those_of_compiled_kernels(name: str) -> None:
    def answer() -> Any:
        try:
            return ASKED[name].run(s=ROWS).to_pydict()
        except UserError as error:
            return str(error)

    with interpreter.interpreted(on=False):
        compiled = answer()
    with interpreter.as_for_users(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(Kernel, "_ready", property(lambda kernel: None, _ignored), raising=False)
        plain = answer()
    assert len(compiled) > 0 and same(plain, compiled), (plain, compiled)


def _cut(x: float) -> float:
    return x if x < 15 else 15.0


@pytest.mark.parametrize("how", ["function", "written anew", "aggregate"])
def test_users_functions_are_compiled_in_the_background_like_all_others(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "PATIENCE", 0.0)
    added = {"function": 1, "written anew": 2, "aggregate": 3}[how]  # so that nothing was compiled before
    s = tm.stream("s", time="t", schema={"t": "int64", "x": "float64"})
    rows = [{"t": t, "x": float(t)} for t in range(40)]
    window = s.window(tm.tumbling(10))
    own = tm.aggregate(
        "own", identity=lambda: 0.0, combine=lambda a, b: a + b, lower=lambda a: a,
        lift=lambda x: _cut(x) + added if x > 2 else 0.0, returns="float64",
    )  # fmt: skip

    def query() -> tm.Query:
        if how == "aggregate":
            return window.agg(x=own(col.x))
        return window.agg(x=tm.sum(tm.udf(lambda x: _cut(x) + added, returns="float64")(col.x)))

    asked = query()
    with interpreter.as_for_users():
        first = asked.run(rows)
        for _ in range(3):
            assert (asked if how != "written anew" else query()).run(rows) == first
            background.wait()
        called: list[Any] = []
        monkeypatch.setattr(modes, "postpone", lambda what, tell: called.append(what))
        assert (asked if how != "written anew" else query()).run(rows) == first
        assert not called


def test_a_function_that_was_compiled_for_many_rows_runs_so_on_few() -> None:
    s = tm.stream("s", time="t", schema={"t": "int64", "x": "float64"})
    doubled = tm.udf(lambda x: _cut(x) + 7 if x > 1 else x, returns="float64")
    query = s.select("t", x=doubled(col.x))
    rows = [{"t": t, "x": float(t)} for t in range(40)]
    with interpreter.as_for_users():
        many = pa.table({"t": range(70_000), "x": [1.0] * 70_000})
        assert query.run(many).num_rows == 70_000
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(modes, "postpone", lambda what, tell: pytest.fail("it runs row by row"))
            assert query.run(rows)["x"].to_pylist()[:3] == [0.0, 1.0, 9.0]


def test_text_that_repeats_has_the_same_answer_before_its_kernels_are_compiled() -> None:
    s = tm.stream("s", time="t", schema={"t": "int64", "k": "string", "x": "string"})
    texts = ["a", None, "bb", "", "longer than a word of eight bytes"]
    rows = [{"t": t, "k": texts[t % 5], "x": texts[t * t % 5]} for t in range(200)]
    window = s.group_by("k").window(tm.session(3))
    query = window.agg(n=tm.count(), last=tm.last(col.x), different=tm.distinct_count(col.x))
    with modes.forced(modes.PLAIN):
        expected = query.run(rows)
    with interpreter.as_for_users():
        assert same(query.run(rows), expected)
