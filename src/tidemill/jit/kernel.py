"""The decorators of kernels. Numba compiles them, and they release the GIL; or they run as plain Python.

A kernel is compiled when it is first called, and Numba is imported only then. On few rows it runs as plain
Python until it has been compiled (`jit.modes`), so that nobody waits for the compiler: the same source, with
the same answer. What runs so again and again is compiled in the background.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from tidemill.jit import background, modes, plain
from tidemill.jit.function_content import NoContentError, named_by_content
from tidemill.jit.sources import GENERATED


class _NotCompiledError(Exception):
    """A kernel would have to be compiled for these arguments, and runs as plain Python."""


class Kernel:
    """A function that runs as machine code or as plain Python; which one is decided at each call."""

    def __init__(
        self, function: Callable[..., Any], *, python_errors: bool = False, any_order: bool = False,
        of_user: bool = False, bare: bool = False,
    ) -> None:  # fmt: skip
        functools.update_wrapper(self, function)
        self.py_func = function
        self.of_user = of_user
        self._python_errors, self._any_order, self._bare = python_errors, any_order, bare
        self._ready: Any = None
        self.called = 0
        """How often it ran as plain Python."""

    def __call__(self, *args: Any) -> Any:
        ready = self._ready
        if ready is not None and modes.mode != modes.PLAIN:
            try:
                return ready(*args)
            except _NotCompiledError:
                return self._in_python(args)
        if _in_python(args):
            return self._in_python(args)
        self._ready = self.compiled
        return self._ready(*args)

    def __reduce__(self) -> str:
        return self.__name__  # type: ignore[attr-defined, no-any-return]

    @functools.cached_property
    def compiled(self) -> Any:
        """The function as Numba compiles it for each signature, with its cache on disk."""
        import numba

        from tidemill.jit.disk_cache import keep_on_disk

        how: dict[str, Any] = {"error_model": "python" if self._python_errors else "numpy"}
        if self._any_order:
            how["fastmath"] = {"reassoc", "nsz"}
        if self._bare:
            how["_nrt"] = False
        made = numba.njit(nogil=True, **how)(self.py_func)
        if not self.of_user or GENERATED in self.py_func.__globals__:
            made = keep_on_disk(made)
        if self.of_user:  # what calls it is a kernel, or asks if it can be compiled
            return made
        compile = made._compile_for_args

        def compile_for_args(*args: Any, **named: Any) -> Any:
            if _in_python(args):
                raise _NotCompiledError
            return compile(*args, **named)

        # Numba's dispatcher calls this when it has no machine code for the types of the arguments.
        made._compile_for_args = compile_for_args
        return made

    def compile_like(self, args: tuple[Any, ...]) -> None:
        """Compile for the types of such arguments; later calls use that."""
        import numba

        self.compiled.compile(tuple(map(numba.typeof, args)))
        self._ready = self.compiled

    @property
    def _numba_type_(self) -> Any:
        """Another kernel may call this one: what Numba needs for that."""
        from numba import types

        return types.Dispatcher(self.compiled)

    @functools.cached_property
    def plain(self) -> Callable[..., Any]:
        """The function that runs as plain Python, on boxed values."""
        return _of_user(self.py_func) if self.of_user else plain.python_form(self.py_func, _resolved)

    def _in_python(self, args: tuple[Any, ...]) -> Any:
        begin = modes.now()
        with np.errstate(all="ignore"):
            found = plain.unboxed(self.plain(*map(plain.boxed, args)))
        seconds = modes.now() - begin
        modes.spend(seconds)
        self.called += 1
        if modes.mode == modes.AUTO:
            background.ran(self, args, seconds)
        return found


def slow(kernel: Any) -> bool:
    """Return whether a kernel runs as plain Python here as nobody has compiled it: give it little to do."""
    return isinstance(kernel, Kernel) and kernel._ready is None and modes.undecided()


def _in_python(args: tuple[Any, ...]) -> bool:
    """Return whether a kernel that is not compiled for such arguments runs as plain Python."""
    if modes.mode == modes.PLAIN:
        return True
    elements = sum(a.size for a in args if isinstance(a, np.ndarray))
    return modes.plain_here() and elements <= modes.ELEMENTS


def _resolved(value: Any) -> Any:
    """What plain Python uses for a global of a kernel."""
    if isinstance(value, Kernel) or hasattr(value, "plain"):
        return value.plain
    return plain.boxed(value)


def _of_user(function: Any) -> Callable[..., Any]:
    """A user's function as it was written: its copy calls kernels."""
    function = getattr(function, "__wrapped__", function) if GENERATED in function.__globals__ else function

    def call(*args: Any) -> Any:
        return plain.boxed(function(*args))

    return call


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function once for each signature and cache it on disk; it releases the GIL.

    LLVM inlines small functions into the loops that call them.
    """
    return Kernel(function)


def bare_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `kernel`, for functions that allocate nothing: references to arrays are not counted.

    A kernel counts those of each array that it passes on: an atomic instruction, which takes longer than many
    a function.
    """
    return Kernel(function, bare=True)


def adding_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `kernel`, for a loop that adds floats in any order: the compiler may use SIMD."""
    return Kernel(function, any_order=True)


def calling_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `kernel`, for a loop that calls users' functions: dividing by zero raises, as in Python."""
    return Kernel(function, python_errors=True)


def any_kernel(function: Any) -> Any:
    """Compile a user's function; Numba's errors are not caught. Dividing by zero raises, as in Python.

    It is cached on disk by its content (`function_content`), if that can be told. Equal functions are
    compiled once.
    """
    try:
        copy = named_by_content(function, _of_content)
    except NoContentError:
        return Kernel(getattr(function, "py_func", function), python_errors=True, of_user=True)
    return _of_content(copy)


_known: dict[str, Any] = {}
"""Compiled functions by their content."""


def _of_content(copy: FunctionType) -> Any:
    content = copy.__globals__[GENERATED]
    if content not in _known:
        _known[content] = Kernel(copy, python_errors=True, of_user=True)
    return _known[content]
