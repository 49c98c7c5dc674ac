"""Arrays whose memory is used again.

A page of memory that a process touches for the first time costs about a microsecond, in a virtual machine
up to twenty: more than most loops need for the data in it. Large arrays of the engines therefore come from
here. Their memory returns to a pool when nothing refers to it any more, and the next array takes it.

Fresh memory comes in *slabs* of several megabytes, for which NumPy asks the system for huge pages: to touch
them costs about a quarter as much. A slab is divided into pieces of one size. Its memory returns to the
system when all its pieces are gone, so up to a slab of each size may stay longer than that.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

SMALL = 1 << 17
"""Arrays of fewer bytes are left to the allocator, which uses their memory again by itself."""
SLAB = 1 << 22
"""The bytes of the first slab of each size, enough for NumPy to ask for huge pages; the next are larger."""
LARGEST_SLAB = 1 << 25
_SOME_TIME = 1 << 10
"""After so many arrays were returned, it is counted anew how many pieces of each size are needed."""
MOST = 1 << 29
"""The pool holds at most this many unused bytes; more are released."""


class Pool:
    """Unused memory, by size. There are four sizes to a power of two, so that similar arrays share memory.

    >>> pool = Pool()
    >>> first = pool.take(300_000)
    >>> address = first.ctypes.data
    >>> del first
    >>> pool.take(310_000).ctypes.data == address
    True
    """

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._free: dict[int, list[npt.NDArray[np.uint8]]] = {}
        self._unseen = 0
        """Bytes that came back since all were counted, which takes longer than many a loop."""
        self._untouched: dict[int, list[npt.NDArray[np.uint8]]] = {}
        """Pieces of slabs that nobody has taken yet: they take no memory."""
        self._slab: dict[int, int] = {}
        """The bytes of the next slab of each size."""
        self._clock = itertools.count()
        self._returned: dict[int, int] = {}
        """When memory of each size was last returned."""
        self._surplus: dict[int, int] = {}
        """The least number of free pieces of each size for some time: so many were not needed."""

    @property
    def held(self) -> int:
        """The unused bytes that were used before."""
        return sum(size * len(free) for size, free in list(self._free.items()))

    def take(self, size: int) -> npt.NDArray[np.uint8]:
        """Return at least `size` uninitialised bytes."""
        step = 1 << max(0, size.bit_length() - 3)
        rounded = -(-size // step) * step
        memory = _popped(self._free, rounded)
        if rounded in self._surplus:
            self._surplus[rounded] = min(self._surplus[rounded], len(self._free[rounded]))
        if memory is None:
            memory = _popped(self._untouched, rounded)
        if memory is None:
            memory = self._fresh(rounded)
        return np.asarray(_Owner(memory, self._give_back))

    def _fresh(self, size: int) -> npt.NDArray[np.uint8]:
        """Return a piece of a new slab, and keep the others for later."""
        slab = self._slab.get(size, SLAB)
        self._slab[size] = min(2 * slab, LARGEST_SLAB)
        pieces = max(1, slab // size)
        memory = np.empty(pieces * size, dtype=np.uint8)
        others = [memory[i * size : (i + 1) * size] for i in range(pieces - 1, 0, -1)]
        self._untouched.setdefault(size, []).extend(others)
        return memory[:size]

    def _give_back(self, memory: npt.NDArray[np.uint8]) -> None:
        """Take memory back. If it is too much, release what was not needed for some time.

        Other threads may do the same at any point.
        """
        size, now = len(memory), next(self._clock)
        self._free.setdefault(size, []).append(memory)
        self._returned[size] = now
        self._unseen += size
        if self._unseen > self.most >> 4:
            self._unseen = 0
            spare = self.held - (self.most - (self.most >> 4))
            if spare > 0:
                self._release(spare)
        if now % _SOME_TIME == 0:
            self._surplus = {size: len(free) for size, free in list(self._free.items())}

    def _release(self, spare: int) -> None:
        """Release so many bytes: first pieces that were not needed, then all of the oldest sizes."""
        for size, surplus in list(self._surplus.items()):
            for _ in range(surplus):
                if spare <= 0 or _popped(self._free, size) is None:
                    break
                self._surplus[size] -= 1
                spare -= size
        for oldest in sorted(self._returned, key=self._returned.__getitem__):
            while spare > 0 and _popped(self._free, oldest) is not None:
                spare -= oldest
            if spare <= 0:
                return
            # Nothing of this size is in the pool any more: the next slab is small again.
            self._untouched.pop(oldest, None)
            self._slab.pop(oldest, None)


def _popped(lists: dict[int, list[npt.NDArray[np.uint8]]], size: int) -> npt.NDArray[np.uint8] | None:
    """Return and remove memory of a size, if there is any; another thread may take it first."""
    try:
        return lists[size].pop()
    except (KeyError, IndexError):
        return None


class _Owner:
    """What arrays over a piece of memory refer to; its end is the end of the last of them."""

    __slots__ = ("_give_back", "_memory")

    def __init__(self, memory: npt.NDArray[np.uint8], give_back: Callable[[Any], None]) -> None:
        self._memory = memory
        self._give_back: Callable[[Any], None] | None = give_back

    def discard(self) -> None:
        self._give_back = None

    @property
    def __array_interface__(self) -> Any:
        return self._memory.__array_interface__

    def __del__(self) -> None:
        if self._give_back is not None:
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


def discard(array: npt.NDArray[Any]) -> None:
    """Release the memory of an array when nothing refers to it any more, in place of giving it to the pool.

    For arrays that were too small: the next one will be larger. A piece of a slab is released with the slab.
    """
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, _Owner):
        owner.discard()


def empty_like(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """As `np.empty_like`, from memory that was used before."""
    return empty(array.shape, array.dtype)


def taken(
    values: npt.NDArray[Any], places: npt.NDArray[Any], *, last: int | None = None
) -> npt.NDArray[Any]:
    """As `values[places]`, in memory that was used before. All places must exist; `last` is the greatest.

    >>> taken(np.array([5, 6, 7]), np.array([2, 0]))
    array([7, 5])
    """
    places = np.asarray(places)
    last = int(places.max(initial=-1)) if last is None else last
    assert last < len(values), "a place that does not exist"
    # Other modes than `clip` copy the result.
    return np.take(values, places, out=empty(places.shape, values.dtype), mode="clip")
