"""Run kernels as plain Python: no compiler is needed, and nothing of Numba is imported.

A kernel takes half a second or more to compile, and a few thousand rows take Python some milliseconds. The
function that runs is made of the kernel's own source (`jit.translate`).
"""

from __future__ import annotations

import ast
import ctypes
import linecache
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tidemill.jit.translate import translated

_LOW, _HIGH, _WORD = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1


class Records:
    """An array of records: each field is an attribute."""

    def __init__(self, array: Any) -> None:
        self._rows = array
        self.shape = array.shape
        for name in array.dtype.names:
            setattr(self, name, memoryview(array[name]))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: Any) -> Any:
        return Records(self._rows[at]) if isinstance(at, slice) else Record(self, at)

    def __setitem__(self, at: Any, record: Record) -> None:
        self._rows[at] = record.of._rows[record.at]


class Record:
    """A record where it is in its array: what is written to it, is written there."""

    __slots__ = ("at", "of")

    def __init__(self, of: Records, at: Any) -> None:
        object.__setattr__(self, "of", of)
        object.__setattr__(self, "at", at)

    def __getattr__(self, field: str) -> Any:
        return getattr(self.of, field)[self.at]

    def __setattr__(self, field: str, value: Any) -> None:
        getattr(self.of, field)[self.at] = value


class _Unaligned:
    """An array at an address that a `memoryview` does not read."""

    def __init__(self, array: Any) -> None:
        self._rows = array
        self.shape = array.shape
        self.format = "l" if array.dtype == np.int64 else ""

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: Any) -> Any:
        return boxed(self._rows[at])

    def __setitem__(self, at: Any, value: Any) -> None:
        self._rows[at] = value


def boxed(value: Any) -> Any:
    """What a kernel works on, for what it was given."""
    if isinstance(value, np.ndarray):
        if value.dtype.names is not None:
            return Records(value)
        words: Any = value.view(np.int64) if value.dtype.kind in "mM" else value
        return memoryview(words) if value.flags.aligned else _Unaligned(words)
    if isinstance(value, np.generic):
        return value.item()
    return each(boxed, value) if isinstance(value, tuple) else value


def each(change: Callable[[Any], Any], values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a tuple of the same type with changed elements."""
    made = map(change, values)
    return type(values)(*made) if hasattr(values, "_fields") else tuple(made)


def unboxed(value: Any) -> Any:
    """What a kernel returns, for what it worked on."""
    if isinstance(value, tuple):
        return each(unboxed, value)
    return _array(value) if isinstance(value, (memoryview, Records)) else value


def _array(value: Any) -> Any:
    if isinstance(value, (Records, _Unaligned)):
        return value._rows
    if isinstance(value, Record):
        return value.of._rows[value.at]
    return np.asarray(value) if isinstance(value, memoryview) else value


def _by_numpy(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    return boxed(function(*map(_array, args), **{name: _array(v) for name, v in named.items()}))


def _wrapped(x: int) -> int:
    return x if _LOW <= x <= _HIGH else ((x - _LOW) & _WORD) + _LOW


def _int64(value: Any) -> int:
    x = int(value)
    return x if _LOW <= x <= _HIGH else ((x - _LOW) & _WORD) + _LOW


def _fitting(array: Any, x: int) -> int:
    """An unsigned number as an array of signed ones stores it."""
    return x if x <= _HIGH or array.format != "l" else x - _WORD - 1


def _row(array: Any, at: Any) -> Any:
    """An element of an array, or a row of one with two dimensions."""
    if isinstance(array, memoryview) and array.ndim > 1:
        return boxed(np.asarray(array)[at])
    return array[at]


def _divided(a: Any, b: Any) -> float:
    try:
        return float(a) / float(b)
    except ZeroDivisionError:
        return float(np.float64(a) / np.float64(b))


def _floor_divided(a: Any, b: Any) -> Any:
    if b:
        return a // b
    return np.floor_divide(np.float64(a), np.float64(b)).item() if isinstance(b, float) else 0


def _modulo(a: Any, b: Any) -> Any:
    if b:
        return a % b
    return math.nan if isinstance(b, float) else 0


def _power(a: float, b: float) -> float:
    """As C has it: NumPy takes the root of minus infinity for a power of a half."""
    return math.inf if (a, b) == (-math.inf, 0.5) else float(np.power(np.float64(a), np.float64(b)))


_NAMES = {
    "_LOW": _LOW, "_HIGH": _HIGH, "_WORD": _WORD, "_Record": Record, "_array": _array, "_by_numpy": _by_numpy,
    "_fitting": _fitting, "_row": _row, "_wrapped": _wrapped, "_int64": _int64, "_divided": _divided,
    "_floor_divided": _floor_divided, "_modulo": _modulo, "_power": _power,
}  # fmt: skip
"""What translated source calls."""


def python_form(function: Any, resolved: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a function that does in Python what a kernel does in machine code, on boxed values.

    `resolved` returns what stands for a global: for a kernel, its Python form.
    """
    code = function.__code__
    found = {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    unsigned = [name for name, value in found.items() if isinstance(value, np.uint64)]
    (definition,) = ast.parse(_source(function)).body
    assert isinstance(definition, ast.FunctionDef)
    tree = ast.Module([translated(definition, unsigned)], [])
    namespace = {**_NAMES, **{name: resolved(value) for name, value in found.items()}}
    ast.increment_lineno(tree, code.co_firstlineno - 1)
    exec(compile(tree, code.co_filename, "exec"), namespace)
    made: Callable[..., Any] = namespace[function.__name__]
    made.__defaults__ = function.__defaults__
    return made


def _source(function: Any) -> str:
    """The text of a function at the top of a module, from its decorator on."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    first = code.co_firstlineno - 1
    last = first + 1
    while not lines[last - 1].startswith("def "):
        last += 1
    while last < len(lines) and lines[last][0] in " \n)#":
        last += 1
    return "".join(lines[first:last])


# --- what has no source in Python: the forms of `jit.intrinsics` and of Numba's functions ---------------


def leading_zeros(x: int) -> int:
    return 64 - (x & _WORD).bit_length()


def as_int(value: Any) -> int:
    below = value < 9223372036854775808.0 if isinstance(value, float) else value <= _HIGH
    fits = _LOW <= value and below
    if not fits:
        raise ValueError("it returned NaN or a number outside int64, but an int is declared")
    return int(value)


def word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def bytes_at(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def byte_at(address: int) -> int:
    return ctypes.c_uint8.from_address(address).value


def in_order(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def publish(address: int, value: int) -> None:
    ctypes.c_int64.from_address(address).value = value


def address_of(array: Any) -> int:
    return int(_array(array).ctypes.data)


def copy_bytes(to: int, source: int, n: int) -> None:
    ctypes.memmove(to, source, n)


def fetch(address: int) -> None:
    """Nothing is asked for in advance."""


def popcount(bits: int) -> int:
    return (bits & _WORD).bit_count()


def float_of(bits: int) -> float:
    return ctypes.c_double.from_buffer(ctypes.c_uint64(bits & _WORD)).value


def pointer(address: int, dtype: Any) -> tuple[int, Any]:
    return address, dtype


def carray(at: tuple[int, Any], shape: tuple[int, ...]) -> Any:
    address, dtype = at
    size = math.prod(shape) * dtype.itemsize
    if size == 0:
        return boxed(np.empty(shape, dtype))
    held = (ctypes.c_char * size).from_address(address)
    return boxed(np.frombuffer(held, dtype).reshape(shape))


def column_at(address: int, n: int, dtype: Any) -> Any:
    return carray((address, dtype), (n,))


