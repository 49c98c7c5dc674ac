"""One Spark session for the whole run, in a time zone that is not UTC on purpose."""

from __future__ import annotations

import gc
import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests import compiling, interpreter, spark_settings
from tests.examples import TIMES
from tests.faults.counts import LINES

# The first call of anything that compiles is slow, and the machine may be busy.
settings.register_profile("tidemill", deadline=None, max_examples=15 if TIMES == 1 else 100)
settings.load_profile("tidemill")

ROOT = Path(__file__).resolve().parent.parent
INTERPRETED = (
    "aggregates", "conformance", "expr", "features", "first_hour", "fuzz", "intervals", "local", "optimize",
    "plan", "spark", "wheels",
)  # fmt: skip
"""Folders whose tests run generated kernels as plain Python, as examples in docstrings do: combinations of a
few rows each. Tests marked `compiled` are the sample of them that is compiled as it is for users; in a soak
all of them are."""
KEPT = ("compiled", "soak")
"""Tests there that are compiled in any case."""
ONCE = ("spark", "connect", "saved_wheels", "bare_job")
"""Fixtures that are made in one process only: all tests that have one run there, before the others."""


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under `-n 2 --dist loadgroup`, one worker has the one Spark session and all that needs it; so it is
    with other fixtures that take long to make. Other tests stay with their file: they have kernels in
    common. Groups start in the order of `ONCE`, then those of most tests, so that none is long at the end."""
    groups: dict[str, list[pytest.Item]] = {fixture: [] for fixture in ONCE}
    for item in items:
        top, *below = item.path.relative_to(ROOT).parts
        small = top == "src" or below[0] in INTERPRETED
        if small and not any(map(item.get_closest_marker, KEPT)):
            item.add_marker("interpreted")
        found = (fixture for fixture in ONCE if fixture in getattr(item, "fixturenames", ()))
        group = next(found, "/".join(below) if top == "tests" else top)
        item.add_marker(pytest.mark.xdist_group(group))
        groups.setdefault(group, []).append(item)
    if "PYTEST_XDIST_WORKER" in os.environ:
        once = [groups.pop(fixture) for fixture in ONCE]
        files = sorted(groups.values(), key=len, reverse=True)
        items[:] = itertools.chain(*once, *files)


def pytest_configure(config: pytest.Config) -> None:
    config.option.loadscopereorder = False  # the order is that of `pytest_collection_modifyitems`
    compiling.listen()
    interpreter.install()


def pytest_collection_finish() -> None:
    """Thousands of tests stay to the end: they need not be looked at whenever memory is collected."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Tests marked `interpreted` compile no generated kernel."""
    compiled = item.get_closest_marker("compiled") is not None
    with interpreter.interpreted(on=item.get_closest_marker("interpreted") is not None and not compiled):
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """What a test compiled travels with its report, from whichever process runs it."""
    item.user_properties.extend(("compiled", one) for one in compiling.taken())


@pytest.fixture(autouse=True)
def machines_say(request: pytest.FixtureRequest) -> Iterator[None]:
    """What machines counted travels with the report of their test, from whichever process runs it."""
    LINES.clear()
    yield
    request.node.user_properties.extend(("machine", line) for line in LINES)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What was compiled; how many cases each machine ran and how many differed, whether or not pytest shows
    what tests print."""
    entries = [entry for some in terminalreporter.stats.values() for entry in some]
    reports = [e for e in entries if isinstance(e, pytest.TestReport) and e.when == "teardown"]
    said = [(report.nodeid, *pair) for report in reports for pair in report.user_properties]
    compiled = [(test, one) for test, name, one in said if name == "compiled"]
    if file := os.environ.get("TIDEMILL_COMPILED"):
        lines = [json.dumps({"test": test, **one}) for test, one in compiled]
        Path(file).write_text("\n".join(lines))
    for title, lines in (
        ("kernels", compiling.summary(compiled) if compiled else []),
        ("machines", [line for _, name, line in said if name == "machine"]),
    ):
        if lines:
            terminalreporter.write_sep("=", title)
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    # Python workers must find this interpreter, the package, and functions of the tests.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tidemill tests")
        .config(map=spark_settings.SETTINGS)
        .config("spark.default.parallelism", "2")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.driver.memory", "2g")
        # Every call of a column's method would tell Java where it was called from.
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        # Rows made in a test are few enough for the optimizer to compute with; real ones are not.
        .config(
            "spark.sql.optimizer.excludedRules",
            "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
        )
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def generated_java(spark: Any) -> Iterator[None]:
    """Spark compiles the queries of a test: a sample of them, and all in a soak."""
    with spark_settings.generating_java(spark):
        yield
