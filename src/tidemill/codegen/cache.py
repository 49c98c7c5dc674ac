"""Generated source → a module on disk → a compiled kernel, found again by the hash of its source.

Numba caches machine code only for functions whose source is a real file and whose module is in
`sys.modules` under its own name before it runs (DESIGN 8). So that is what happens here. The files
live in the user's cache directory and appear by rename; the directory is the user's alone.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from tidemill.core.errors import UserError

_HEADER = "from tidemill.codegen.runtime import *\nimport math\nimport numpy as np\n\n"


def load(source: str, **names: Any) -> ModuleType:
    """The module of a generated source; the same source gives the same module.

    It sees the names of `runtime`, and of the modules of this package that it imports all names of.

    `names` are objects the source refers to (compiled user functions). They have no text to hash,
    so a module that needs any is not kept on disk.
    """
    return _load_cached(source) if not names else _load_unique(source, names)


@functools.cache
def _load_cached(source: str) -> ModuleType:
    text = _HEADER + source
    inlined = "".join(_text_of(m) for m in re.findall(r"^from (\S+) import \*", text, re.MULTILINE))
    name = f"tidemill_kernel_{hashlib.sha256((inlined + text).encode()).hexdigest()[:24]}"
    path = cache_directory() / f"{name}.py"
    if not path.exists():
        _write(path, text)
    return _import(name, path, {})


_unique = 0


def _load_unique(source: str, names: dict[str, Any]) -> ModuleType:
    global _unique
    _unique += 1
    name = f"tidemill_kernel_once_{os.getpid()}_{_unique}"
    module = ModuleType(name)
    sys.modules[name] = module
    module.__dict__.update(names)
    text = (_HEADER + source).replace("@kernel", "@any_kernel")
    exec(compile(text, f"<{name}>", "exec"), module.__dict__)
    for run in ("run", "run_at"):
        if run in module.__dict__:
            module.__dict__[run] = _explained(module.__dict__[run], names)
    return module


def _explained(run: Callable[..., Any], functions: dict[str, Any]) -> Callable[..., Any]:
    """A kernel that calls users' functions, and says so when one of them raises."""
    shown = ", ".join(sorted({getattr(f, "__name__", str(f)) for f in functions.values()}))

    @functools.wraps(run)
    def explained(*args: Any) -> Any:
        try:
            return run(*args)
        except (ArithmeticError, ValueError, LookupError, AssertionError) as failed:
            raise UserError(
                f"compiled function {shown}", f"raised {type(failed).__name__}: {failed}",
                hint="return a value for every argument",
            ) from failed  # fmt: skip

    return explained


def _import(name: str, path: Path, names: dict[str, Any]) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    module.__dict__.update(names)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _write(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.replace(temporary, path)


@functools.cache
def cache_directory() -> Path:
    """Where kernels are kept: `TIDEMILL_CACHE`, or `tidemill/kernels` in the user's cache."""
    base = os.environ.get("TIDEMILL_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = Path(base) if base else home / "tidemill" / "kernels"
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError:  # a read-only home, as on some clusters: compile again in each process
        path = Path(tempfile.mkdtemp(prefix="tidemill-kernels-"))
    return path


@functools.cache
def _text_of(module: str) -> str:
    """Generated code inlines what it calls, so a change there makes every kernel stale."""
    file = importlib.import_module(module).__file__
    assert file is not None
    return Path(file).read_text()
