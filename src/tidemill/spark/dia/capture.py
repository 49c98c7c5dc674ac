"""Capture the variables of a function at the time of the call.

A DIA is computed later, perhaps after a loop has changed the variables that its functions read.
Traced functions read them at once; opaque functions must do the same.
"""

from __future__ import annotations

from types import CellType, FunctionType
from typing import Any

from tidemill.spark.dia.bytecode import names_of
from tidemill.spark.dia.tracing import Function


def captured(function: Function) -> Function:
    """Copy a function with the current values of its variables. The values themselves are not copied.

    >>> functions = [captured(lambda: i) for i in range(3)]
    >>> [f() for f in functions]
    [0, 1, 2]
    """
    made: Function = _captured(function, {})
    return made


def _captured(value: Any, seen: dict[int, Any]) -> Any:
    # Functions that can be imported by name are not copied; lambdas and the like are, as Spark would
    # pickle them by value anyway.
    if not isinstance(value, FunctionType) or not _is_local(value):
        return value
    if id(value) in seen:  # recursive
        return seen[id(value)]
    used = names_of(value.__code__)
    world = {n: v for n, v in value.__globals__.items() if n in used or n.startswith("__")}
    cells = tuple(CellType() for _ in value.__closure__ or ())
    copy = FunctionType(value.__code__, world, value.__name__, value.__defaults__, cells or None)
    copy.__kwdefaults__, copy.__dict__ = value.__kwdefaults__, dict(value.__dict__)
    copy.__qualname__, copy.__module__ = value.__qualname__, value.__module__
    seen[id(value)] = copy
    for cell, original in zip(cells, value.__closure__ or ()):
        try:
            cell.cell_contents = _captured(original.cell_contents, seen)
        except ValueError:  # a variable that has no value yet
            continue
    for name in used & set(world):
        world[name] = _captured(world[name], seen)
    return copy


def _is_local(function: FunctionType) -> bool:
    return "<" in function.__qualname__ or function.__module__ == "__main__"
