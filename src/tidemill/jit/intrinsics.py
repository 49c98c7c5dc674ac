"""Scalar operations that Python cannot spell: what Numba or LLVM must be told directly."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.cpython.unsafe.numbers import leading_zeros as _leading_zeros
from numba.extending import intrinsic, overload

from tidemill.jit.kernel import kernel


@kernel
def leading_zeros(x: int) -> Any:
    """How many bits of a uint64 are zero above the highest one."""
    return np.int64(_leading_zeros(np.uint64(x)))  # type: ignore[call-arg]  # Numba's own, without a stub


@kernel
def float_to_int_fits(a: float) -> bool:
    return a >= -9223372036854775808.0 and a < 9223372036854775808.0


def as_int(value: Any) -> int:
    """What a user's compiled function gave where an int is wanted; it raises where there is none.

    Machine code would make the lowest int of NaN, and of whatever is too large.
    """
    return int(value)


@overload(as_int)
def _as_int(value: Any) -> Any:
    if isinstance(value, types.Float):
        return _int_of_float
    return _int_of_word if value == types.uint64 else _int_of_int


def _int_of_int(value: Any) -> Any:
    return np.int64(value)


def _int_of_float(value: Any) -> Any:
    if not float_to_int_fits(value):
        raise ValueError("it gave NaN or a number outside int64 where an int is declared")
    return np.int64(value)


def _int_of_word(value: Any) -> Any:
    if value > np.uint64((1 << 63) - 1):
        raise ValueError("it gave a number outside int64 where an int is declared")
    return np.int64(value)


def _word(typing: Any, address: Any) -> Any:
    """The word at an address, in whichever file or array that is."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()))

    return types.uint64(types.int64), generate


def _float_of(typing: Any, bits: Any) -> Any:
    """The float that has these bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), generate


def _in_order(typing: Any, address: Any) -> Any:
    """The int at an address, read after all that was read before it and before all that is read later.

    Others may write it meanwhile. A plain read could be moved, or taken for one with a read before it.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        builder.fence("acquire")
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(types.int64), generate


in_order: Any = intrinsic(_in_order)
word: Any = intrinsic(_word)
float_of: Any = intrinsic(_float_of)
