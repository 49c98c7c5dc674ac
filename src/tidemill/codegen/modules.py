"""Load generated source as a module of compiled kernels, cached by the hash of its source.

Only machine code is cached on disk (`jit/disk_cache.py`). The source is generated each time, so that no file
can differ from it. The module is in `sys.modules` before its code is executed, because Numba looks it up.
"""

from __future__ import annotations

import functools
import hashlib
import linecache
import os
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tidemill.core.errors import UserError
from tidemill.jit.function_content import content_of
from tidemill.jit.sources import GENERATED, file_of, source_hash

_HEADER = "from tidemill.kernels.functions import *\nimport math\nimport numpy as np\n\n"


def load(source: str, **names: Any) -> ModuleType:
    """Load generated source as a module; the same source returns the same module.

    The source can use the names of `kernels.functions`, and of modules that it imports with `import *`.

    `names` are compiled user functions that the source calls. If the content of all of them is known
    (`jit/function_content.py`), it is hashed with the source. Otherwise the module is new for each call, and
    not cached on disk.
    """
    return _load_cached(source) if not names else _load_with(source, names)


@functools.cache
def _load_cached(source: str) -> ModuleType:
    text = _HEADER + source
    return _executed(text, _hash(text), {})


_with_functions: dict[str, ModuleType] = {}
_unique = 0


def _load_with(source: str, names: dict[str, Any]) -> ModuleType:
    global _unique
    text = (_HEADER + source).replace("@kernel", "@calling_kernel")
    contents = {name: content_of(function) for name, function in names.items()}
    found = None
    if None not in contents.values():
        found = _hash("\0".join((text, *(f"{name} {contents[name]}" for name in sorted(contents)))))
        if found in _with_functions:
            return _with_functions[found]
    else:
        _unique += 1
    module = _executed(text, found, names)
    for run in ("run", "run_at"):
        if run in module.__dict__:
            module.__dict__[run] = _explained(module.__dict__[run], names)
    if found is not None:
        _with_functions[found] = module
    return module


def _hash(text: str) -> str:
    """Return the hash of a source and of the modules that it imports.

    Kernels inline the functions that they call, so a change to one invalidates every kernel.
    """
    inlined = re.findall(r"^from (\S+) import \*", text, re.MULTILINE)
    known = "\0".join((*(source_hash(file_of(module)) or "" for module in inlined), text))
    return hashlib.sha256(known.encode()).hexdigest()


def _executed(text: str, found: str | None, names: dict[str, Any]) -> ModuleType:
    """Execute source in a new module with some names. It is cached on disk if it has a hash."""
    name = f"tidemill_kernel_{found[:24]}" if found else f"tidemill_kernel_once_{os.getpid()}_{_unique}"
    module = ModuleType(name)
    if found:
        module.__dict__[GENERATED] = found
    module.__dict__.update(names)
    file = f"{name}.py"
    # Lets tracebacks show the source.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    sys.modules[name] = module
    exec(compile(text, file, "exec"), module.__dict__)
    return module


def _explained(run: Callable[..., Any], functions: dict[str, Any]) -> Callable[..., Any]:
    """Wrap a kernel so that exceptions of users' functions become a `UserError` that names them."""
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
