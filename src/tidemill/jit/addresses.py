"""Kernels that find their arrays by address.

Taking an array apart costs a call from Python 0.1 µs, and 0.2 µs where it has records; a wheel has a dozen
of them and is called with few rows. So the addresses and shapes of arrays that stay where they are go into
one array of numbers, the *frame*, which keeps the arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import carray, types  # type: ignore[attr-defined]
from numba.extending import intrinsic

from tidemill.jit.kernel import kernel

PLACES = 3
"""Numbers to an array: its address, its length, and what is in each row of it."""


def _pointer(typing: Any, address: Any, dtype: Any) -> Any:
    """An address as a pointer to values of a type."""
    kind = types.CPointer(dtype.dtype)

    def cast(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(kind))

    return kind(types.int64, dtype), cast


pointer: Any = intrinsic(_pointer)


@kernel
def column_at(address: int, n: int, dtype: Any) -> Any:
    return carray(pointer(address, dtype), (n,))


class _Kept(bytearray):
    """Addresses, and the arrays that lie there: who has the one has the other."""

    arrays: Sequence[Any]


def keeping(numbers: Sequence[int], arrays: Sequence[Any]) -> npt.NDArray[np.int64]:
    """An array of numbers that keeps others: their addresses are among the numbers."""
    kept = _Kept(np.array(numbers, dtype=np.int64).tobytes())
    kept.arrays = arrays
    return np.frombuffer(kept, dtype=np.int64)


def frame_of(arrays: Sequence[npt.NDArray[Any]], *numbers: int) -> npt.NDArray[np.int64]:
    """The frame of arrays that lie in one piece each; then more numbers that a kernel needs."""
    found = []
    for array in arrays:
        assert array.flags.c_contiguous
        found += [array.ctypes.data, len(array), array.shape[1] if array.ndim > 1 else 1]
    return keeping([*found, *numbers], arrays)


def by_address(
    function: str, parameters: Sequence[str], arrays: Mapping[str, tuple[str, int]]
) -> list[str]:
    """The first lines of a kernel `function(frame, …)` whose `arrays` are in a frame, in the order of its
    parameters. An array has the text of a type of NumPy, and one dimension or two."""
    scalars = [p for p in parameters if p not in arrays]
    kinds, lines = [], ["", "@kernel", f"def {function}({', '.join(['frame', *scalars])}):"]
    for place, name in enumerate(p for p in parameters if p in arrays):
        kind, dimensions = arrays[name]
        kinds.append(f"{function}_{name}_type = {kind}")
        address, *shape = (f"frame[{PLACES * place + i}]" for i in range(1 + dimensions))
        lines.append(
            f"    {name} = carray(pointer({address}, {function}_{name}_type), ({', '.join(shape)},))"
        )
    return ["", *kinds, *lines]


def dtype_text(dtype: np.dtype[Any]) -> str:
    """A type of NumPy as an expression."""
    if dtype.names is None:
        return f"np.dtype({dtype.str!r})"
    fields = [(name, dtype[name].str) for name in dtype.names]
    return f"np.dtype({fields!r}, align={dtype.isalignedstruct})"


ADDRESSES = "from tidemill.jit.addresses import *"
