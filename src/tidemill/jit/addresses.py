"""Pass arrays to kernels by address.

Numba needs 0.1 µs to unbox an array argument, and 0.2 µs for an array of records. A wheel has a dozen arrays
and is called with few rows. The addresses and shapes of arrays that are not reallocated are therefore stored
in one array of numbers, the *frame*, which also keeps the arrays alive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tidemill.jit.intrinsics import carray, pointer
from tidemill.jit.kernel import kernel

PLACES = 3
"""The numbers for each array in a frame: its address, its length, and the length of its second dimension."""


@kernel
def column_at(address: int, n: int, dtype: Any) -> Any:
    return carray(pointer(address, dtype), (n,))


class _Kept(bytearray):
    """A buffer of addresses that holds references to the arrays at these addresses."""

    arrays: Sequence[Any]


def keeping(numbers: Sequence[int], arrays: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Return an array of numbers that keeps `arrays` alive; the numbers contain their addresses."""
    kept = _Kept(np.array(numbers, dtype=np.int64).tobytes())
    kept.arrays = arrays
    return np.frombuffer(kept, dtype=np.int64)


def frame_of(arrays: Sequence[npt.NDArray[Any]], *numbers: int) -> npt.NDArray[np.int64]:
    """Return the frame of contiguous arrays, followed by other numbers that a kernel needs."""
    found = []
    for array in arrays:
        assert array.flags.c_contiguous
        found += [array.ctypes.data, len(array), array.shape[1] if array.ndim > 1 else 1]
    return keeping([*found, *numbers], arrays)


def by_address(
    function: str, parameters: Sequence[str], arrays: Mapping[str, tuple[str, int]]
) -> list[str]:
    """Return the first lines of a kernel `function(frame, …)` that reads its arrays from a frame.

    `arrays` maps names to the source of a NumPy type and the number of dimensions, one or two. In the frame
    they have the order of `parameters`.
    """
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
    """Return the source of a NumPy type."""
    if dtype.names is None:
        return f"np.dtype({dtype.str!r})"
    fields = [(name, dtype[name].str) for name in dtype.names]
    return f"np.dtype({fields!r}, align={dtype.isalignedstruct})"


ADDRESSES = "from tidemill.jit.addresses import *"
