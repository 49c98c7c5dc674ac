"""Generated source: what is in it, what is not, and that it is found again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import tidemill as tm
from tidemill import col
from tidemill.codegen.columns import Columns
from tidemill.codegen.stage_kernel import stage_kernel
from tidemill.core.schema import schema
from tidemill.expr.fluent import Expr
from tidemill.expr.typing import resolve
from tidemill.local.window_operator import WindowOperator
from tidemill.plan.nodes import WindowAggregate

S = schema({"secret_column": "int64", "other": "float64"})


def _columns() -> Columns:
    return Columns(schema({"secret_column": "int64"}))


def source(predicate: Expr) -> str:
    return stage_kernel(Columns(S), (resolve(predicate.node, S, step="t"),), (), True).source


def test_names_of_columns_never_appear_in_source() -> None:
    text = source((col.secret_column % 100 < 5) & (col.other > 0.5))
    assert "secret_column" not in text and "other" not in text
    assert "c0[i]" in text and "c1[i]" in text


def test_the_same_shape_is_the_same_kernel_whatever_the_names() -> None:
    other = schema({"a": "int64", "b": "float64"})
    node = resolve((col.a % 100 < 5).node, other, step="t")
    ours = source(col.secret_column % 100 < 5)
    assert stage_kernel(Columns(other), (node,), (), True).source == ours


def test_text_never_appears_in_source() -> None:
    query = (
        tm.stream("s", time="t", schema={"t": "int64", "name": "string"})
        .where(col.name == "$(rm -rf)")
        .window(tm.tumbling(5))
        .agg(last=tm.last(col.name))
    )
    plan = query.optimized
    assert isinstance(plan, WindowAggregate)
    operator = WindowOperator(plan)
    query.run(s=[{"t": 1, "name": "$(rm -rf)"}])
    columns = Columns(operator.collectors[0].intake.expressions.schema)
    assert "rm -rf" not in operator.collectors[0].intake.kernel(columns, "planes", "ids", False).source


def test_a_plain_filter_has_no_branch() -> None:
    assert "continue" not in source(col.secret_column > 3)
    assert "continue" in source(col.secret_column + 1 > 3)  # it may overflow


def test_a_kernel_is_found_again_by_the_next_process(tmp_path: Path) -> None:
    script = (
        "import tidemill as tm\n"
        "from tidemill import col\n"
        "s = tm.stream('s', time='t', schema={'t': 'int64', 'x': 'int64'})\n"
        "print(s.where(col.x % 7 == 3).run(s=[{'t': 1, 'x': 10}]).num_rows)\n"
    )
    env = {**os.environ, "TIDEMILL_KERNELS": "compiled", "TIDEMILL_CACHE": str(tmp_path)}
    env.pop("NUMBA_CACHE_DIR", None)
    paths = [str(Path(tm.__file__).parents[1]), env.get("PYTHONPATH", "")]
    env["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)

    def run() -> set[str]:
        done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
        assert done.stdout.strip() == "1", done.stderr
        return {p.name for p in tmp_path.rglob("*") if p.suffix in (".py", ".nbc")}

    first = run()
    assert any(name.endswith(".nbc") for name in first)
    assert run() == first


def test_branch_free_and_branching_filters_agree() -> None:
    rng = np.random.default_rng(5)
    x = rng.integers(-9, 9, 500)
    kept = np.empty(501, dtype=np.int64)
    free = stage_kernel(_columns(), (resolve((col.secret_column > 3).node, S, step="t"),), (), True)
    m, err = free.run(500, x, kept)
    assert err == 0
    assert kept[:m].tolist() == np.flatnonzero(x > 3).tolist()
    branching = stage_kernel(
        _columns(), (resolve((col.secret_column + 0 > 3).node, S, step="t"),), (), True
    )
    again = np.empty(501, dtype=np.int64)
    m2, _ = branching.run(500, x, again)
    assert again[:m2].tolist() == kept[:m].tolist()
