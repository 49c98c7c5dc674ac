"""Read what a function refers to from its bytecode. Opcodes change between Python versions.

This file imports only the standard library, so that its test can run it on every Python in `KNOWN`.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType

KNOWN = ((3, 10), (3, 11), (3, 12), (3, 13))
"""Python versions whose opcodes were reviewed. On others, functions run in Python: slower, never wrong."""

_CATCHES = {"PUSH_EXC_INFO", "SETUP_FINALLY", "SETUP_WITH", "SETUP_ASYNC_WITH"}
_FORMATS = {"FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE"}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"}


@dataclass
class References:
    """The names that a function's code refers to, including functions defined inside it."""

    asks: str | None = None
    """The reason why the function must see values, if the code has one."""
    globals: set[str] = field(default_factory=set)
    imports: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    values: set[str] = field(default_factory=set)
    """Attributes that are read but not called."""

    @classmethod
    def of(cls, code: CodeType, version: tuple[int, int] = sys.version_info[:2]) -> References:
        """Read the code of a function."""
        if version not in KNOWN:
            return cls(asks=f"the bytecode of Python {version[0]}.{version[1]} is not known here")
        found = cls()
        for instruction in _instructions(code):
            found._read(instruction)
            if found.asks is not None:
                break
        return found

    def _read(self, instruction: dis.Instruction) -> None:
        opcode, name = instruction.opname, instruction.argval
        if opcode == "IS_OP" or opcode.startswith("MATCH_") or "NONE" in opcode.split("_"):
            self.asks = "it asks what a value is"
        elif opcode in _FORMATS:
            self.asks = "it formats a value"
        elif opcode in _CATCHES:
            self.asks = "it catches exceptions"
        elif opcode in ("LOAD_GLOBAL", "LOAD_NAME"):
            self.globals.add(name)
        elif opcode == "IMPORT_NAME":
            self.imports.add(name)
        elif opcode in _ATTRIBUTES and name.startswith("__"):
            self.asks = f"it reads .{name}"
        elif opcode in _ATTRIBUTES:
            self.attributes.add(name)
            if not _is_call(instruction):
                self.values.add(name)


def _instructions(code: CodeType) -> Iterator[dis.Instruction]:
    yield from dis.get_instructions(code)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _instructions(inner)


def _is_call(instruction: dis.Instruction) -> bool:
    """Whether an attribute is loaded as a method that is called next."""
    if instruction.opname == "LOAD_METHOD":
        return True
    return sys.version_info >= (3, 12) and bool((instruction.arg or 0) & 1)


def names_of(code: CodeType) -> set[str]:
    """The names that a function, or one inside it, may look up in its module."""
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return set(code.co_names).union(*map(names_of, inner))
