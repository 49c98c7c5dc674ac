"""The machine code of `jit.intrinsics`, made with LLVM. Only a process that compiles imports this."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from tidemill.jit.intrinsics import as_int, float_to_int_fits


def _leading_zeros(typing: Any, x: Any) -> Any:
    """Return the number of leading zero bits of a uint64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@overload(as_int)
def _as_int(value: Any) -> Any:
    if isinstance(value, types.Float):
        return _int_of_float
    return _int_of_word if value == types.uint64 else _int_of_int


def _int_of_int(value: Any) -> Any:
    return np.int64(value)


def _int_of_float(value: Any) -> Any:
    if not float_to_int_fits(value):
        raise ValueError("it returned NaN or a number outside int64, but an int is declared")
    return np.int64(value)


def _int_of_word(value: Any) -> Any:
    if value > np.uint64((1 << 63) - 1):
        raise ValueError("it returned a number outside int64, but an int is declared")
    return np.int64(value)


def _word(typing: Any, address: Any) -> Any:
    """Read the 64-bit word at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()))

    return types.uint64(types.int64), generate


def _bytes_at(typing: Any, address: Any) -> Any:
    """Read the eight bytes at any address, also one that is not a multiple of eight."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()), align=1)

    return types.uint64(types.int64), generate


def _address_of(typing: Any, array: Any) -> Any:
    """Return the address of the first element of an array.

    `array.ctypes.data` is the same, but counts a reference up and down each time: ten nanoseconds in a loop.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, args[0])
        return builder.ptrtoint(made.data, ir.IntType(64))

    return types.int64(array), generate


def _byte_at(typing: Any, address: Any) -> Any:
    """Read the byte at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = builder.load(builder.inttoptr(args[0], ir.IntType(8).as_pointer()))
        return builder.zext(byte, ir.IntType(64))

    return types.int64(types.int64), generate


def _copy_bytes(typing: Any, to: Any, source: Any, n: Any) -> Any:
    """Copy `n` bytes from one address to another."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, source = (builder.inttoptr(a, ir.IntType(8).as_pointer()) for a in args[:2])
        cgutils.raw_memcpy(builder, to, source, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _fetch(typing: Any, address: Any) -> Any:
    """Ask for the memory at an address, which is read or written soon. The address need not exist."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = [ir.IntType(8).as_pointer(), *[ir.IntType(32)] * 3]
        kind = ir.FunctionType(ir.VoidType(), kinds)
        ask = builder.module.declare_intrinsic("llvm.prefetch", kinds[:1], kind)
        how = [ir.Constant(ir.IntType(32), n) for n in (1, 3, 1)]  # to write, to keep, of data
        builder.call(ask, [builder.inttoptr(args[0], kinds[0]), *how])
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _float_of(typing: Any, bits: Any) -> Any:
    """Return the float with these bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), generate


def _in_order(typing: Any, address: Any) -> Any:
    """Read the int at an address, ordered after all earlier reads and before all later reads.

    Another thread or process may write it at the same time. The compiler could reorder a plain read, or
    merge it with an earlier one.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        builder.fence("acquire")
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(types.int64), generate


def _publish(typing: Any, address: Any, value: Any) -> Any:
    """Write the int at an address, ordered after all earlier writes and before all later writes."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        builder.store_atomic(args[1], pointer, "release", 8)
        builder.fence("release")
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _popcount(typing: Any, bits: Any) -> Any:
    """Return the number of set bits of an int64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.int64), generate


def _pointer(typing: Any, address: Any, dtype: Any) -> Any:
    """Convert an address to a pointer to values of a type."""
    kind = types.CPointer(dtype.dtype)

    def cast(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(kind))

    return kind(types.int64, dtype), cast


MACHINE: dict[str, Any] = {
    made.__name__.removeprefix("_"): intrinsic(made)
    for made in (
        _leading_zeros, _address_of, _in_order, _popcount, _publish, _word, _bytes_at, _byte_at, _copy_bytes,
        _fetch, _float_of, _pointer,
    )
}  # fmt: skip
"""Numba's intrinsics by name."""
