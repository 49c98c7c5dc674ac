"""Users' functions by content, so that their machine code can be cached on disk like that of this package.

Numba compiles a function from its bytecode, and treats the globals and closed-over values that it reads as
constants. The hash of all of these is therefore the name of the machine code: a function that was edited, or
one of the same text that closes over another number, has another hash; a function that was moved has not.

The function is compiled as a copy in a module of its own, which is named by the hash and has the values that
were hashed and no others. The name is part of every symbol of the machine code: without it, two lambdas that
two processes compiled could have the same symbol, and a third process that loads both would run one of them
for both.
"""

from __future__ import annotations

import builtins
import dis
import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from tidemill.jit.sources import GENERATED, file_of, source_hash

_MODULES = ("math", "cmath", "operator", "numpy")
"""Modules whose functions Numba implements itself, so that their names say what they do."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))


class NoContentError(Exception):
    """Says why the content of a function cannot be told."""


def named_by_content(
    function: Any, compile: Callable[[FunctionType], Any], within: tuple[FunctionType, ...] = ()
) -> FunctionType:
    """Return a copy of a function in a module that is named by its content.

    Plain functions that it calls are copied as well, and given to `compile`. Raises `NoContentError` if the
    function is not one of Python, or refers to something that may change or has no hash.

    >>> scale = 2
    >>> double = named_by_content(lambda x: x * scale, lambda f: f)
    >>> scale = 3
    >>> double(5), double.__module__[:18]
    (10, 'tidemill_function_')
    """
    function = getattr(function, "py_func", function)  # Numba compiles the function that it was made of
    if not isinstance(function, FunctionType):
        raise NoContentError(f"{_shown(function)} is not a Python function")
    if function in within:
        raise NoContentError(f"{function.__name__} calls itself")
    reader = _Reader(compile, (*within, function))
    code = function.__code__
    names = sorted(set(_global_names(code)))
    used = {name: function.__globals__[name] for name in names if name in function.__globals__}
    for name in names:
        if name not in used and not hasattr(builtins, name):
            raise NoContentError(f"the global {name} is not defined")
    taken = {name: reader.value(name, value) for name, value in used.items()}
    cells = [reader.value(n, _inside(n, c)) for n, c in zip(code.co_freevars, function.__closure__ or ())]
    defaults = [reader.value("a default", v) for v in function.__defaults__ or ()]
    by_name = {n: reader.value(n, v) for n, v in (function.__kwdefaults__ or {}).items()}
    text = "\0".join(
        (
            importlib.util.MAGIC_NUMBER.hex(), np.__version__, _compiled_by(),
            function.__name__, _code_text(code),
            *(f"{name}={said}" for name, (_, said) in taken.items()), "closure", *(said for _, said in cells),
            "defaults", *(said for _, said in defaults), *(f"{n}={said}" for n, (_, said) in by_name.items()),
        )
    )  # fmt: skip
    digest = hashlib.sha256(text.encode()).hexdigest()
    module = ModuleType(f"tidemill_function_{digest[:24]}")
    module.__dict__.update({GENERATED: digest, "__builtins__": builtins})
    module.__dict__.update({name: value for name, (value, _) in taken.items()})
    closure = tuple(CellType(value) for value, _ in cells)
    copy = FunctionType(code, module.__dict__, function.__name__, closure=closure)
    copy.__defaults__ = tuple(value for value, _ in defaults) or None
    copy.__kwdefaults__ = {name: value for name, (value, _) in by_name.items()} or None
    copy.__qualname__ = function.__name__  # the place of its definition is not part of it
    copy.__dict__["__wrapped__"] = function
    sys.modules.setdefault(module.__name__, module)  # Numba looks it up there
    return copy


def _compiled_by() -> str:
    """The hash of the module that says how functions are compiled."""
    return source_hash(file_of("tidemill.jit.kernel")) or ""


def content_of(compiled: Any) -> str | None:
    """Return the hash of a compiled function that `named_by_content` copied; None for others."""
    found: str | None = compiled.py_func.__globals__.get(GENERATED)
    return found


def uncached(function: Any) -> str:
    """Return why the machine code of a function is not cached on disk; empty if it is.

    >>> table = [1, 2]
    >>> uncached(lambda i: table[i])
    'table is a list, which may change'
    >>> uncached(lambda i: i + 1)
    ''
    """
    try:
        named_by_content(function, lambda f: f)
    except NoContentError as why:
        return str(why)
    return ""


class _Reader:
    """Values that a function refers to: what its copy gets, and the text that is hashed."""

    def __init__(self, compile: Callable[[FunctionType], Any], within: tuple[FunctionType, ...]) -> None:
        self._compile, self._within = compile, within

    def value(self, name: str, value: Any) -> tuple[Any, str]:
        if isinstance(value, FunctionType):
            copy = named_by_content(value, self._compile, self._within)
            return self._compile(copy), f"function {copy.__globals__[GENERATED]}"
        if isinstance(value, ModuleType):
            if value.__name__ not in _MODULES:
                raise NoContentError(f"it uses the module {value.__name__}")
            return value, f"module {value.__name__}"
        if isinstance(value, (BuiltinFunctionType, np.ufunc, type)):
            return value, _library_name(name, value)
        return value, _constant(name, value)


def _constant(name: str, value: Any) -> str:
    """The text of a constant: 1, 1.0 and True are different, as 0.0 and -0.0 are."""
    kind = type(value)
    if kind is int:
        return f"int {value:x}"  # there is no limit to hexadecimal digits
    if kind in _PLAIN:
        return f"{kind.__name__} {value!r}"
    if isinstance(value, np.generic) and not value.dtype.hasobject:
        return f"{value.dtype.str} {value.tobytes().hex()}"
    if kind is tuple:
        return f"({', '.join(_constant(name, v) for v in value)})"
    if kind is frozenset:
        return f"{{{', '.join(sorted(_constant(name, v) for v in value))}}}"
    if hasattr(value, "py_func"):
        raise NoContentError(f"{name} is compiled by Numba already; leave its decorator out")
    raise NoContentError(f"{name} is a {kind.__name__}, which may change")


def _library_name(name: str, value: Any) -> str:
    """The text of a function or type of a library, if its name says what it is."""
    own: str = value.__name__
    for module in ("builtins", *_MODULES):
        if getattr(sys.modules.get(module), own, None) is value:
            return f"{module}.{own}"
    raise NoContentError(f"{name} is of another library")


def _inside(name: str, cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        raise NoContentError(f"{name} has no value yet") from None


def _global_names(code: CodeType) -> Iterable[str]:
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield step.argval
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _global_names(inner)


def _code_text(code: CodeType) -> str:
    """Everything that code does, without where it was written."""
    constants = [_code_text(c) if isinstance(c, CodeType) else _constant("it", c) for c in code.co_consts]
    parts = (
        code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars,
        code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags,
        getattr(code, "co_exceptiontable", b"").hex(), constants,
    )  # fmt: skip
    return repr(parts)


def _shown(value: Any) -> str:
    return str(getattr(value, "__name__", None) or repr(value))
