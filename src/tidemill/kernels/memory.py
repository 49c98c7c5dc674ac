"""Arrays whose memory is used again.

A page of memory that a process touches for the first time costs about a microsecond, in a virtual machine
up to twenty: more than most loops need for the data in it. Large arrays of the engines therefore come from
here. Their memory returns to a pool when nothing refers to it any more, and the next array takes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

SMALL = 1 << 17
"""Arrays of fewer bytes are left to the allocator, which uses their memory again by itself."""
MOST = 1 << 29
"""The pool holds at most this many bytes; more are returned to the system."""


class Pool:
    """Unused memory, by size. There are four sizes to a power of two, so that similar arrays share memory.

    >>> pool = Pool(most=1 << 20)
    >>> first = pool.take(300_000)
    >>> address = first.ctypes.data
    >>> del first
    >>> pool.held, pool.take(310_000).ctypes.data == address
    (327680, True)
    """

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._free: dict[int, list[npt.NDArray[np.uint8]]] = {}

    @property
    def held(self) -> int:
        """The unused bytes."""
        return sum(size * len(free) for size, free in list(self._free.items()))

    def take(self, size: int) -> npt.NDArray[np.uint8]:
        """Return at least `size` uninitialised bytes."""
        step = 1 << max(0, size.bit_length() - 3)
        rounded = -(-size // step) * step
        try:
            memory = self._free.setdefault(rounded, []).pop()
        except IndexError:
            memory = np.empty(rounded, dtype=np.uint8)
        return np.asarray(_Owner(memory, self._give_back))

    def _give_back(self, memory: npt.NDArray[np.uint8]) -> None:
        if self.held + len(memory) <= self.most:
            self._free[len(memory)].append(memory)


class _Owner:
    """What arrays over a piece of memory refer to; its end is the end of the last of them."""

    __slots__ = ("_give_back", "_memory")

    def __init__(self, memory: npt.NDArray[np.uint8], give_back: Callable[[Any], None]) -> None:
        self._memory, self._give_back = memory, give_back

    @property
    def __array_interface__(self) -> Any:
        return self._memory.__array_interface__

    def __del__(self) -> None:
        self._give_back(self._memory)


_pool = Pool()


def empty(shape: int | tuple[int, ...], dtype: Any = np.int64) -> npt.NDArray[Any]:
    """As `np.empty`, from memory that was used before.

    >>> empty((2, 3)).shape, empty(100_000, np.float64).dtype
    ((2, 3), dtype('float64'))
    """
    kind = np.dtype(dtype)
    count = shape if isinstance(shape, int) else math.prod(shape)
    size = count * kind.itemsize
    if size < SMALL:
        return np.empty(shape, dtype=kind)
    found: npt.NDArray[Any] = _pool.take(size)[:size].view(kind).reshape(shape)
    return found
