"""Scalar operations that Python cannot express in machine words: each has a plain form, and machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidemill.jit import plain
from tidemill.jit.kernel import kernel


class Intrinsic:
    """An operation that kernels call. Numba takes its machine code, which `jit.machine` makes."""

    def __init__(self, form: Callable[..., Any]) -> None:
        self.plain = form
        self.name = form.__name__

    def __call__(self, *args: Any) -> Any:
        return plain.unboxed(self.plain(*map(plain.boxed, args)))

    @property
    def _numba_type_(self) -> Any:
        from numba import carray  # type: ignore[attr-defined]
        from numba.core.registry import cpu_target

        from tidemill.jit.machine import MACHINE

        cpu_target.typing_context.refresh()
        return cpu_target.typing_context.resolve_value_type(MACHINE.get(self.name, carray))


address_of: Any = Intrinsic(plain.address_of)
byte_at: Any = Intrinsic(plain.byte_at)
bytes_at: Any = Intrinsic(plain.bytes_at)
carray: Any = Intrinsic(plain.carray)
copy_bytes: Any = Intrinsic(plain.copy_bytes)
fetch: Any = Intrinsic(plain.fetch)
float_of: Any = Intrinsic(plain.float_of)
in_order: Any = Intrinsic(plain.in_order)
leading_zeros: Any = Intrinsic(plain.leading_zeros)
pointer: Any = Intrinsic(plain.pointer)
popcount: Any = Intrinsic(plain.popcount)
publish: Any = Intrinsic(plain.publish)
word: Any = Intrinsic(plain.word)


@kernel
def float_to_int_fits(a: float) -> bool:
    return a >= -9223372036854775808.0 and a < 9223372036854775808.0


def as_int(value: Any) -> int:
    """Convert the result of a user's compiled function to an int, or raise if it is not in int64.

    Machine code would convert NaN and numbers that are too large to the lowest int.
    """
    return plain.as_int(value)
