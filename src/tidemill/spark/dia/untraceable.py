"""Find code that expressions would answer wrongly, before a function is traced.

Tracing calls a function on expressions. Most operations that these do not support (`if x`, `len(x)`,
`int(x)`) raise, and the function stays opaque. Some give a wrong answer: `x is None` is false, an exception
that the function catches becomes its default, a random number is drawn once for all elements. Such code is
searched for in the bytecode of the function and of the functions that it calls. On a Python whose bytecode is
not known, no function is traced.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from tidemill.core.types import DataType
from tidemill.spark.dia.bytecode import References

CHANGES = "it may give something else each time"
FOLLOWED = 100
"""The most functions, called directly or indirectly, that are searched."""

_LOOKS: tuple[Any, ...] = (
    isinstance, issubclass, type, id, hasattr, getattr, callable, repr, operator.is_, operator.is_not,
)  # fmt: skip
"""Functions that inspect a value and do not raise on expressions."""
_CLOCKS = {"now", "today", "utcnow"}
_TIME_PARTS = {"year", "month", "day", "hour", "minute", "second", "microsecond"}
_OURS = "tidemill."
_AROUND = "tidemill.spark.dia."
"""Functions of this package wrap users' functions, which are searched; the rest of Tidemill is traceable."""
_CHANGING = {
    "random", "time", "uuid", "secrets", "posix", "nt", "socket", "_socket", "threading", "_thread",
    "platform",
}  # fmt: skip
"""Modules whose functions are not deterministic across calls or tasks."""


def asks(function: Callable[..., Any], kinds: Sequence[DataType] = ()) -> str | None:
    """The reason why a function of elements of these types must see values; None if none is found.

    >>> import random
    >>> asks(random.random), asks(abs)
    ('it may give something else each time', None)
    """
    parts = _TIME_PARTS if any(map(_holds_time, kinds)) else set()
    parts = parts - {name for kind in kinds for name in _fields(kind)}
    todo: list[Any] = [function]
    seen: dict[int, Any] = {}
    followed = 0
    while todo:
        each = todo.pop()
        if id(each) in seen:
            continue
        seen[id(each)] = each
        if _changes(each):
            return CHANGES
        if any(each is look for look in _LOOKS):
            return f"it calls {each.__name__}"
        if not isinstance(each, FunctionType):
            todo += _called_by(each)
        elif (each.__module__ or "").startswith(_AROUND):
            todo += _held(each)
        elif not (each.__module__ or "").startswith(_OURS):
            followed += 1
            if followed > FOLLOWED:
                return "it calls more functions than are searched"
            read = References.of(each.__code__)
            if read.asks is not None:
                return read.asks
            if read.values & parts:
                return f"it reads .{min(read.values & parts)}, which is a method of expressions"
            todo += _referred(each, read)
    return None


def _called_by(value: Any) -> list[Any]:
    """The functions that run when a callable other than a Python function is called."""
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, MethodType):
        return [value.__func__]
    # Looked up statically: an object such as `tm.col` returns something for every attribute.
    found = [inspect.getattr_static(value, "__wrapped__", None)]  # such as by lru_cache
    if not isinstance(value, type):
        found.append(inspect.getattr_static(type(value), "__call__", None))
    return [f for f in found if isinstance(f, FunctionType)]


def _referred(function: FunctionType, read: References) -> Iterator[Any]:
    """The values of a function's names: globals, closure, and members of modules and classes that it uses."""
    named = (function.__globals__.get(n, getattr(builtins, n, None)) for n in read.globals)
    for value in (*named, *map(sys.modules.get, read.imports), *_held(function)):
        yield value
        yield from _members(value, read.attributes)


def _held(function: FunctionType) -> Iterator[Any]:
    """The values that a function carries: closure variables, defaults, a wrapped function."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a variable that has no value yet
            continue
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    yield function.__dict__.get("__wrapped__")


def _members(value: Any, names: set[str], depth: int = 2) -> Iterator[Any]:
    """The members of a module or class with these names, as deep as `np.random.rand`."""
    if isinstance(value, ModuleType):
        found = [vars(value)[n] for n in names & set(vars(value))]
    elif isinstance(value, type):
        found = [getattr(value, n) for n in names if hasattr(value, n)]
    else:
        return
    for member in found:
        yield member
        if depth > 1:
            yield from _members(member, names, depth - 1)


def _changes(value: Any) -> bool:
    """Whether a function, or an object with methods, is random, reads a clock, or depends on its process."""
    if isinstance(value, (BuiltinFunctionType, MethodType)):
        owner = value.__self__
        if isinstance(owner, type):
            return owner.__module__ == "datetime" and value.__name__ in _CLOCKS
        modules = {value.__module__, type(owner).__module__}
    else:
        modules = {value.__module__ if isinstance(value, FunctionType) else type(value).__module__}
    return any(m.split(".")[0] in _CHANGING or m.startswith("numpy.random") for m in modules if m)


def _holds_time(kind: DataType) -> bool:
    return kind.kind == "timestamp" or any(map(_holds_time, kind.of))


def _fields(kind: DataType) -> Iterator[str]:
    yield from kind.names
    for inner in kind.of:
        yield from _fields(inner)
