"""Imports point one way: down the layers of docs/design.md, section 5."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "tidemill"

API = ("__init__", "stream", "query", "feature_set", "data_stream", "datasets", "demo")
LAYERS: tuple[tuple[str, ...], ...] = (
    API,
    ("cli", "serve", "plot", "sql"),
    ("features",),
    ("spark",),
    ("wheels",),
    ("local",),
    ("io", "reference"),
    ("intervals",),
    ("codegen",),
    ("kernels",),
    ("jit",),
    ("optimize",),
    ("plan",),
    ("aggregates", "windows"),
    ("expr",),
    ("core",),
)
DEPTH = {unit: depth for depth, layer in enumerate(LAYERS) for unit in layer}

INSIDE: dict[str, tuple[tuple[str, ...], ...]] = {
    "spark": (
        ("__init__", "query"),
        ("wheels",),
        ("batch", "dia", "inputs", "sinks"),
        ("exchange",),
        ("expr",),
        ("caching", "frames", "settings", "workers"),
        ("errors", "names", "private"),
    ),
    "local": (
        ("reconcile", "run_live"),
        ("live",),
        ("feeds", "lookups"),
        ("late_sink",),
        ("checkpoint_directory", "emission", "live_delay", "row_lookup"),
        ("given_rows", "live_input", "live_results", "live_stats", "checkpoint"),
        ("attribute_limits", "live_table", "unread_columns", "unusable_rows"),
        ("explain", "partial_batches", "progressive"),
        ("run",),
        ("divided_run",),
        ("run_graph",),
        ("graph", "turns"),
        ("spray", "table_stages", "temporal"),
        ("keyed_lanes",),
        ("indexed_exact",),
        ("indexed_operator",),
        ("arrival_operator", "as_of_operator"),
        (
            "cut_operator", "interval_operator", "join_operator", "lifetime_operator", "lookup_operator",
            "next_operator", "rows_by_key", "snapshot_operator",
        ),
        ("edge_sweep", "interval_answers", "keyed_operator", "snapshot_values"),
        ("ahead", "interval_ranges", "range_values"),
        ("last_range", "matching", "ranking", "stage_operator", "union"),
        ("group_operator",),
        ("temporal_operator", "window_operator"),
        ("kept_by_key", "lane_threads", "lanes", "late_rows", "refused_rows", "waiting_rows"),
        ("window_plan",),
        ("collector",),
        ("last_rows",),
        ("results", "window_slides", "state_columns"),
        ("object_slides", "pane_store"),
        (
            "calendar_panes", "intake", "object_states", "row_numbers", "sorted_rows", "stage_runner",
            "thread_safety",
        ),
        ("changes",),
        ("expressions", "snapshot"),
        ("operator",),
        ("attributes", "key_limits", "lifetimes", "same_rows"),
        ("limits", "marks", "order", "progress_report", "threads", "tuning", "window_gaps"),
    ),
    "wheels": (
        ("open_wheel",),
        ("replicas",),
        ("wheel_store",),
        ("wheel",),
        ("sharing",),
        ("files",),
        ("merge_wheels", "partials", "queries"),
        ("explain", "query_windows", "state"),
        ("closing_windows", "view"),
        ("objects",),
        ("lineage", "memory"),
        ("spec",),
        ("loops",),
        ("rings", "tuning"),
        ("__init__",),
    ),
}
"""The same inside a package, for its folders and files."""

# The definition of the answers: no engine may lean on it.
ORACLE = "reference"

# Who may import a package of others. Imports for type checkers alone are never executed: free.
RESTRICTED = {"pyspark": {"spark"}, "numba": {"jit"}, "llvmlite": {"jit"}}
# Who may do so inside functions only, so that importing the module stays cheap.
LAZILY = {"pyspark": {"demo"}}

PRIVATE = Path("spark", "private.py")
"""The one file with private names of Spark's: attributes and classes of the JVM, modules nobody documents."""
PRIVATE_ATTRIBUTES = re.compile(r"_j[a-z]\w*|_s?c|_gateway|_(active|instantiated|to)_?\w+|queryExecution")
PRIVATE_MODULES = re.compile(r"py4j(\.|$)|pyspark\.(cloudpickle|core|java_gateway|serializers|util|worker)")
PRIVATE_SQL = re.compile(r"pyspark\.sql\.(classic|connect|conversion|pandas|_\w+)")
JAVA_CLASSES = re.compile(r"(org\.apache\.spark|java|scala)(\.\w+)+")


@dataclass(frozen=True)
class Import:
    """One imported module: its full dotted name, and how the import is made."""

    module: str
    line: int
    lazy: bool = False
    typing_only: bool = False


# --- reading imports ------------------------------------------------------------------------------


def imports(path: Path, root: Path) -> Iterator[Import]:
    """Every import of a file, also those inside functions and ``import_module("literal")``."""
    package = ("tidemill", *path.relative_to(root).parent.parts)
    yield from _walk(ast.parse(path.read_text(), str(path)), package, lazy=False, typing=False)


def _walk(node: ast.AST, package: tuple[str, ...], lazy: bool, typing: bool) -> Iterator[Import]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        lazy = True
    for module in _modules(node, package):
        yield Import(module, getattr(node, "lineno", 0), lazy, typing)
    guarded = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                # Only the guarded branch is for type checkers; the else branch runs.
                yield from _walk(child, package, lazy, typing or (guarded and field == "body"))


def _modules(node: ast.AST, package: tuple[str, ...]) -> Iterator[str]:
    """The modules that this one node imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package[: len(package) - node.level + 1] if node.level else ()
        base = ".".join([*above, *([node.module] if node.module else [])])
        # `from tidemill import core` imports a package, `from tidemill import col` a name.
        packages = ("tidemill", *(f"tidemill.{package}" for package in INSIDE))
        yield from (f"{base}.{a.name}" if base in packages else base for a in node.names)
    elif isinstance(node, ast.Call) and node.args:
        called = ast.unparse(node.func).rsplit(".", 1)[-1]
        name = node.args[0]
        if called in ("import_module", "__import__") and isinstance(name, ast.Constant):
            yield str(name.value)


# --- judging them ---------------------------------------------------------------------------------


def unit_of(module: str) -> str:
    """The layer entry that a module of Tidemill belongs to: ``tidemill.plan.nodes`` → ``plan``."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in DEPTH else "__init__"


def complaint(importer: str, found: Import) -> str | None:
    """Why ``importer``, an entry of LAYERS, may not import this; None when it may."""
    top = found.module.split(".")[0]
    if top in RESTRICTED and not found.typing_only and importer not in RESTRICTED[top]:
        if importer not in LAZILY.get(top, ()):
            return f"{importer} must not import {top}"
        return None if found.lazy else f"{importer} may import {top} inside functions only"
    if top != "tidemill":
        return None
    imported = unit_of(found.module)
    if imported == importer or (importer in API and imported in API):
        return None
    if imported == ORACLE:
        return f"{importer} must not import {ORACLE}: an engine does not lean on its oracle"
    if DEPTH[imported] <= DEPTH[importer]:
        return f"{importer} must not import {imported}: imports point down"
    if imported == "spark" and not (found.lazy or found.typing_only):
        return f"{importer} may import spark inside functions only: it brings pyspark"
    return None


def complaint_inside(package: str, importer: str, found: Import) -> str | None:
    """Why a folder or file of a package may not import this from the same package."""
    parts = found.module.split(".")
    if parts[:2] != ["tidemill", package]:
        return None
    imported = parts[2] if len(parts) > 2 else "__init__"
    depth = {unit: at for at, layer in enumerate(INSIDE[package]) for unit in layer}
    if importer not in depth:
        return f"{package}/{importer} belongs to no layer of {package}"
    if imported == importer or depth.get(imported, -1) > depth[importer]:
        return None
    return f"{package}/{importer} must not import {package}/{imported}: imports point down"


def violations(root: Path) -> list[str]:
    """Each import under ``root`` that breaks the layers, with its place."""
    broken = []
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        importer = relative.parts[0].removesuffix(".py")
        if importer not in DEPTH:
            broken.append(f"{relative}: {importer} belongs to no layer")
            continue
        for found in imports(path, root):
            reason = complaint(importer, found)
            if reason is None and importer in INSIDE and len(relative.parts) > 1:
                reason = complaint_inside(importer, relative.parts[1].removesuffix(".py"), found)
            if reason:
                broken.append(f"{relative}:{found.line}: {reason}")
    return broken


def private_names(path: Path) -> Iterator[str]:
    """The private names of Spark's in a file of `spark/`, each with its line."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        found: list[str] = []
        if isinstance(node, ast.Attribute) and PRIVATE_ATTRIBUTES.fullmatch(node.attr):
            ours = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            found = [] if ours else [node.attr]
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            modules = list(_modules(node, ()))
            found = [m for m in modules if PRIVATE_MODULES.match(m) or PRIVATE_SQL.match(m)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = [node.value] if JAVA_CLASSES.fullmatch(node.value) else []
            if PRIVATE_ATTRIBUTES.fullmatch(node.value):  # getattr(df, "_jdf")
                found = [node.value]
        yield from (f"line {getattr(node, 'lineno', 0)}: {name}" for name in found)


# --- the tests ------------------------------------------------------------------------------------


def test_the_package_keeps_its_layers() -> None:
    assert violations(PACKAGE) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("core/time.py", "from tidemill.expr.nodes import Expr"),
        ("core/time.py", "import tidemill"),
        ("core/time.py", "from tidemill import col"),
        ("core/time.py", "from .. import plan"),
        ("core/time.py", "from ..plan import nodes"),
        ("core/time.py", "import importlib\nimportlib.import_module('tidemill.plan')"),
        ("windows/spec.py", "from tidemill.aggregates import algebra"),
        ("kernels/slide.py", "from tidemill.codegen import cache"),
        ("local/run.py", "from tidemill.reference.run import run"),
        ("local/run.py", "from tidemill.wheels.wheel import Wheel"),
        ("local/limits.py", "from tidemill.local.window_operator import WindowOperator"),
        ("local/limits.py", "def f():\n    from tidemill.local import window_operator"),
        ("local/new.py", "from tidemill.local.limits import Limits"),
        ("spark/expr/values.py", "from tidemill.spark.batch.run import frame_of"),
        ("spark/exchange/join.py", "def f():\n    from tidemill.spark.dia import dia"),
        ("wheels/state.py", "def f():\n    from tidemill.wheels.wheel import Wheel"),
        ("wheels/memory/store.py", "from tidemill.wheels.files.checks import require"),
        ("plan/nodes.py", "def f():\n    from tidemill.optimize.optimizer import rules"),
        ("plan/nodes.py", "if TYPE_CHECKING:\n    from tidemill.local import engine"),
        ("kernels/order.py", "import numba"),
        ("local/engine.py", "def f():\n    import pyspark.sql"),
        ("query.py", "def f():\n    from pyspark.sql import DataFrame"),
        ("query.py", "import tidemill.spark"),
        ("demo.py", "from pyspark.sql import SparkSession"),
        ("demo.py", "if TYPE_CHECKING:\n    pass\nelse:\n    import pyspark"),
        ("utils.py", ""),
    ],
)
def test_the_check_finds(tmp_path: Path, file: str, source: str) -> None:
    assert len(_check(tmp_path, file, source)) == 1


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("core/time.py", "from tidemill.core.errors import UserError\nfrom . import types"),
        ("windows/spec.py", "from ..core.time import duration"),
        ("codegen/fold.py", "from tidemill.kernels import slide\nfrom tidemill.jit.kernel import kernel"),
        ("spark/batch/run.py", "import pyspark\nfrom tidemill.local import run"),
        ("query.py", "def f():\n    from tidemill.spark import batch"),
        ("query.py", "if TYPE_CHECKING:\n    from pyspark.sql import SparkSession"),
        ("demo.py", "import tidemill as tm\ndef f():\n    import pyspark"),
        ("__init__.py", "from tidemill.query import Query\nfrom tidemill.expr.fluent import col"),
    ],
)
def test_the_check_allows(tmp_path: Path, file: str, source: str) -> None:
    assert _check(tmp_path, file, source) == []


def test_private_names_of_spark_are_in_one_file() -> None:
    found = {
        str(path.relative_to(PACKAGE)): names
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE) != PRIVATE and (names := list(private_names(path)))
    }
    assert found == {}
    assert len(list(private_names(PACKAGE / PRIVATE))) > 10


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("df._jdf.schema()", "_jdf"),
        ("def f(spark):\n    return spark.sparkContext._jvm.java.util.ArrayList()", "_jvm"),
        ("spark._jsparkSession.sessionUUID()", "_jsparkSession"),
        ("column._jc", "_jc"),
        ("frame._sc", "_sc"),
        ("context._gateway.jvm", "_gateway"),
        ("SparkContext._active_spark_context", "_active_spark_context"),
        ("plan = execution(df).queryExecution()", "queryExecution"),
        ("getattr(df, '_jdf')", "_jdf"),
        ("from py4j.protocol import Py4JJavaError", "py4j.protocol"),
        ("import py4j", "py4j"),
        ("from pyspark.sql.pandas.types import from_arrow_schema", "pyspark.sql.pandas.types"),
        ("from pyspark.sql.classic.dataframe import DataFrame", "pyspark.sql.classic.dataframe"),
        ("from pyspark.core.context import SparkContext", "pyspark.core.context"),
        ("made('org.apache.spark.rdd.UnionRDD')", "org.apache.spark.rdd.UnionRDD"),
    ],
)
def test_the_check_finds_private_names(tmp_path: Path, source: str, name: str) -> None:
    file = tmp_path / "file.py"
    file.write_text(source)
    assert [n.split(": ")[1] for n in private_names(file)] == [name]


def test_the_check_allows_public_names(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text("from pyspark.sql import functions as F\nself._sc = spark.sparkContext.applicationId")
    assert list(private_names(file)) == []


def _check(root: Path, file: str, source: str) -> list[str]:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    return violations(root)


def test_importing_tidemill_is_light() -> None:
    """No JVM bridge, no compiler, no data frames: they come when a query needs them."""
    heavy = "pyspark", "numba", "pandas", "duckdb"
    program = f"import sys, tidemill; print([m for m in {heavy!r} if m in sys.modules])"
    env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
