"""Generated kernels run as plain Python, so that many small cases need no compiling.

A kernel takes Numba half a second and more to compile, and a test of sixty rows a few milliseconds to
interpret. Under `interpreted()`, generated sources (`codegen.modules.load`) are executed by Python on NumPy's
scalars, which have the widths and the overflow of machine numbers. Hand-written kernels that generated code
calls are interpreted, too; those that the engines call themselves stay compiled.

It is a second executor of the same source, so what depends on the compiler alone is not seen here: each
family of kernels is also compiled in `make test`, and in `make soak` all of them are.
"""

from __future__ import annotations

import ast
import ctypes
import functools
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tidemill.codegen import modules
from tidemill.jit.disk_cache import file_of
from tidemill.jit.function_content import content_of

COMPILED = os.environ.get("TIDEMILL_KERNELS") == "compiled"
"""Whether nothing is interpreted."""
_BITS = 1 << 64
_on = False


@contextmanager
def interpreted(*, on: bool = True) -> Iterator[None]:
    """Generated kernels are interpreted in this process, whichever thread calls them."""
    global _on
    before, _on = _on, on and not COMPILED
    try:
        yield
    finally:
        _on = before


def in_child() -> None:
    """Generated kernels are interpreted in all of this process, which a test started."""
    global _on
    install()
    _on = not COMPILED


def install() -> None:
    """Have every module that `codegen.modules.load` makes from now on switch between the two executors."""
    compiled_once, compiled_with = modules._load_cached, modules._load_with

    @functools.cache
    def load_cached(source: str) -> Any:
        return _Switching(source, {}, lambda: compiled_once(source))

    def load_with(source: str, names: dict[str, Any]) -> Any:
        return _Switching(source, names, lambda: compiled_with(source, names))

    modules._load_cached = load_cached  # type: ignore[assignment]
    modules._load_with = load_with  # type: ignore[assignment]


class _Switching:
    """Looks like the module of a generated source. Each call of its functions is compiled or interpreted."""

    def __init__(self, source: str, names: dict[str, Any], load: Callable[[], ModuleType]) -> None:
        self._source, self._names = source, names
        self._compiled = functools.cache(load)

    @functools.cached_property
    def _interpreted(self) -> dict[str, Any]:
        namespace: dict[str, Any] = {name: _users(f) for name, f in self._names.items()}
        text = modules._HEADER + self._source
        _execute(text, f"<interpreted {hash(text):x}>", namespace)
        return namespace

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args: Any) -> Any:
            if not _on:
                return getattr(self._compiled(), name)(*args)
            run = functools.partial(_entered, self._interpreted[name])
            return (modules._explained(run, self._names) if self._names else run)(*args)

        self.__dict__[name] = call
        return call


def _entered(function: Callable[..., Any], *args: Any) -> Any:
    """A call from Python: what goes in has the types of the machine, what comes out has not."""
    with np.errstate(all="ignore"):
        return _unboxed(function(*map(_boxed, args)))


def _boxed(value: Any) -> Any:
    kind = {int: np.int64, float: np.float64}.get(type(value))
    return value if kind is None else kind(value)


def _unboxed(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_unboxed, value))
    return value.item() if isinstance(value, np.generic) else value


def _users(function: Any) -> Callable[..., Any]:
    """A user's function, which divides by zero as Python does."""
    plain = function.py_func
    if content_of(function) is not None:  # a copy, which calls compiled functions
        plain = plain.__wrapped__

    def call(*args: Any) -> Any:
        return plain(*map(_unboxed, args))

    call.__name__ = plain.__name__
    return call


# --- source that means in Python what it means to Numba ---------------------------------------------

_OF_ARRAYS = ("copy", "shape", "size")
"""What kernels ask arrays for; any other attribute is a field of a record."""


_WITH_KERNELS = tuple(f"tidemill.{name}" for name in ("kernels", "jit", "intervals.loops", "wheels.loops"))


class _Rewriting(ast.NodeTransformer):
    """Decorators go; fields of records are items; conversions wrap; comparisons give Python's bools, which
    add up; division never raises."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list, node.returns = [], None
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.func) in ("np.int64", "np.uint64", "np.power"):
            node.func = ast.Name("_" + node.func.attr, ast.Load())  # type: ignore[attr-defined]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        of_module = isinstance(node.value, ast.Name) and node.value.id in ("np", "npt", "math")
        if of_module or node.attr in _OF_ARRAYS:
            return node
        return ast.Subscript(node.value, ast.Constant(node.attr), node.ctx)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        return ast.Call(ast.Name("bool", ast.Load()), [node], [])

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Div):
            node.left = ast.Call(ast.Name("_float64", ast.Load()), [node.left], [])
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if (node.module or "").startswith(_WITH_KERNELS):
            node.module = _module(node.module or "").__name__
        return node


def _execute(text: str, file: str, namespace: dict[str, Any]) -> None:
    tree = ast.fix_missing_locations(_Rewriting().visit(ast.parse(text)))
    namespace |= {"_int64": _int64, "_uint64": _uint64, "_float64": np.float64, "_power": _power}
    exec(compile(tree, file, "exec"), namespace)


@functools.cache
def _module(name: str) -> ModuleType:
    """A module of hand-written kernels, interpreted; it has another name, beside the compiled one."""
    made = ModuleType("interpreted_" + name.replace(".", "_"))
    sys.modules[made.__name__] = made
    if name in _INSTEAD:
        made.__dict__.update(_INSTEAD[name])
    else:
        file = file_of(name)
        _execute(Path(file).read_text(), file, made.__dict__)
    return made


def _int64(value: Any) -> np.int64:
    if isinstance(value, (int, np.uint64)):
        return np.int64((int(value) + _BITS // 2) % _BITS - _BITS // 2)
    return np.int64(value)


def _uint64(value: Any) -> np.uint64:
    return np.uint64(int(value) % _BITS)


def _power(a: float, b: float) -> np.float64:
    """As C has it: NumPy takes the root of minus infinity for a power of a half."""
    return np.float64(math.inf) if (a, b) == (-math.inf, 0.5) else np.power(np.float64(a), np.float64(b))


# --- what has no source in Python --------------------------------------------------------------------


def _leading_zeros(x: Any) -> np.int64:
    return np.int64(64 - int(_uint64(x)).bit_length())


def _float_to_int_fits(a: float) -> bool:
    return bool(-9223372036854775808.0 <= a < 9223372036854775808.0)


def _as_int(value: Any) -> np.int64:
    fits = _float_to_int_fits(value) if isinstance(value, float) else -_BITS // 2 <= value < _BITS // 2
    if not fits:
        raise ValueError("it returned a number outside int64, but an int is declared")
    return np.int64(math.trunc(value))


def _word(address: int) -> np.uint64:
    return np.uint64(ctypes.c_uint64.from_address(int(address)).value)


def _address_of(array: Any) -> np.int64:
    return np.int64(array.ctypes.data)


def _byte_at(address: int) -> np.int64:
    return np.int64(ctypes.c_uint8.from_address(int(address)).value)


def _in_order(address: int) -> np.int64:
    return np.int64(ctypes.c_int64.from_address(int(address)).value)


def _publish(address: int, value: int) -> None:
    ctypes.c_int64.from_address(int(address)).value = int(value)


def _popcount(bits: Any) -> np.int64:
    return np.int64((int(bits) & (1 << 64) - 1).bit_count())


def _float_of(bits: Any) -> np.float64:
    return _int64(bits).view(np.float64)  # type: ignore[no-any-return]


def _pointer(address: int, dtype: np.dtype[Any]) -> tuple[int, np.dtype[Any]]:
    return int(address), dtype


def _carray(at: tuple[int, np.dtype[Any]], shape: tuple[int, ...]) -> Any:
    address, dtype = at
    size = math.prod(map(int, shape)) * dtype.itemsize
    if size == 0:
        return np.empty(shape, dtype)
    held = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(held, dtype).reshape(shape)


def _column_at(address: int, n: int, dtype: np.dtype[Any]) -> Any:
    return _carray(_pointer(address, dtype), (n,))


_INSTEAD: dict[str, dict[str, Any]] = {
    "tidemill.jit.kernel": {
        name: lambda f: f
        for name in ("kernel", "any_kernel", "bare_kernel", "adding_kernel", "calling_kernel")
    },
    "tidemill.jit.intrinsics": {
        "leading_zeros": _leading_zeros, "float_to_int_fits": _float_to_int_fits, "as_int": _as_int,
        "word": _word, "bytes_at": _word, "byte_at": _byte_at, "float_of": _float_of, "in_order": _in_order,
        "popcount": _popcount, "publish": _publish, "address_of": _address_of, "fetch": lambda address: None,
    },
    "tidemill.jit.addresses": {
        "pointer": _pointer, "carray": _carray, "column_at": _column_at,
    },
}  # fmt: skip
