"""What is read off bytecode is the same on every Python that Tidemill runs on; others trace nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill.core.types import INT64
from tidemill.spark.dia import bytecode
from tidemill.spark.dia.tracing import Opaque, Traced, trace

IS, FORMATS, CATCHES = "it asks what a value is", "it formats a value", "it catches exceptions"
ASKS = {
    **dict.fromkeys(("is_none", "is_not_none", "is_same", "loops", "inside", "written_inside"), IS),
    **dict.fromkeys(("matches_class", "matches_sequence"), IS),
    **dict.fromkeys(("formats", "formats_more"), FORMATS),
    **dict.fromkeys(("catches", "finishes", "opens"), CATCHES),
    "dunder": "it reads .__class__",
}
REFERS = {
    **{n: [[]] * 4 for n in ("arithmetic", "compares", "listed", "keyed", "generated", "subscript")},
    "local": [[], ["math"], ["sqrt"], []],
    "method": [[], [], ["hour"], []],
    "attribute": [[], [], ["hour"], ["hour"]],
    "called": [["abs"], [], [], []],
}
"""Globals, imports, attributes, and attributes that are read without a call."""


def interpreter(version: tuple[int, int]) -> str | None:
    """A Python of this version on this machine: this one, on the path, or of pyenv."""
    name = f"python{version[0]}.{version[1]}"
    pyenv = Path.home().glob(f".pyenv/versions/{version[0]}.{version[1]}.*/bin/python")
    found = [sys.executable, shutil.which(name), *map(str, sorted(pyenv))]
    asks = "import sys; print(sys.version_info[:2])"
    for path in filter(None, found):
        done = subprocess.run([path, "-c", asks], capture_output=True, text=True)
        if done.stdout.strip() == str(version):
            return path
    return None


@pytest.mark.parametrize("version", bytecode.KNOWN, ids=str)
def test_functions_look_at_the_same_things(version: tuple[int, int]) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    child = Path(__file__).with_name("bytecode_child.py")
    done = subprocess.run([python, str(child), bytecode.__file__], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {name: asks for name, (asks, *_) in found.items() if asks is not None} == ASKS
    assert {name: refers for name, (asks, *refers) in found.items() if asks is None} == REFERS


def test_pyproject_names_no_other_python() -> None:
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    named = [f"Programming Language :: Python :: {a}.{b}" in text for a, b in bytecode.KNOWN]
    assert all(named) and text.count("Programming Language :: Python :: 3.") == len(named)


def test_on_an_unknown_python_functions_stay_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    function = lambda x: x + 1
    assert isinstance(trace(function, [INT64]), Traced)
    monkeypatch.setattr(bytecode, "KNOWN", ((2, 7),))
    found = trace(function, [INT64])
    assert isinstance(found, Opaque) and "is not known here" in found.why
    assert found.function(1) == 2
