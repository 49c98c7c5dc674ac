"""The sources that machine code was made of, as a hash: a change to one of them makes other code."""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path

GENERATED = "__tidemill_hash__"
"""The attribute of a module without a file that holds the hash of its content: generated source, or a user's
function (`function_content`)."""
_IMPORTED = re.compile(r"^from (tidemill\.\S+) import", re.MULTILINE)
_NOT_COMPILED = (
    "tidemill.jit.disk_cache", "tidemill.jit.cache_directory", "tidemill.jit.modes", "tidemill.jit.plain",
    "tidemill.jit.background", "tidemill.jit.translate", "tidemill.jit.sources", "tidemill.core.errors",
)  # fmt: skip
"""Modules that say nothing about what machine code does."""


@functools.cache
def source_hash(file: str) -> str | None:
    """Return the hash of a source file and of all modules of this package that it imports.

    Compiled code contains both. Returns None if there is no such file.
    """
    texts: dict[str, str] = {}
    _gather(file, texts)
    if not texts[file]:
        return None
    return hashlib.sha256("\0".join(texts[n] for n in sorted(texts)).encode()).hexdigest()


def _gather(file: str, texts: dict[str, str]) -> None:
    if file in texts:
        return
    try:
        texts[file] = Path(file).read_text()
    except (OSError, UnicodeDecodeError):
        texts[file] = ""
    for module in _IMPORTED.findall(texts[file]):
        if module not in _NOT_COMPILED:
            _gather(file_of(module), texts)


def file_of(module: str) -> str:
    """Return the file of a module of this package, without importing it."""
    return str(Path(__file__).parents[1].joinpath(*module.split(".")[1:]).with_suffix(".py"))
