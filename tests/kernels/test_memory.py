"""The pool of memory: what is used again, what is released."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tidemill.kernels.memory import LARGEST_SLAB, SMALL, Pool, discard, taken


def test_the_sizes_that_were_not_used_for_the_longest_time_are_released_first() -> None:
    pool = Pool(most=40 << 20)
    held = [pool.take(size) for size in (10 << 20, 12 << 20, 14 << 20)]
    del held[0]
    del held[0]
    last = pool.take(32 << 20)
    address = last.ctypes.data
    del held[0], last  # 36 MB are free, and 32 MB more are returned
    assert pool.held == 32 << 20
    assert pool.take(32 << 20).ctypes.data == address


def test_the_pool_is_bounded_whatever_is_done_with_its_memory() -> None:
    pool = Pool(most=8 << 20)
    for size in range(SMALL, 4 << 20, 100_000):
        array = pool.take(size)
        discard(array)
        del array
    array = pool.take(1 << 20)
    del array
    assert pool.held <= pool.most


def test_memory_that_is_discarded_is_not_used_again() -> None:
    pool = Pool()
    first = pool.take(LARGEST_SLAB)
    view = first[10:20].view(np.int8)
    discard(view)
    before = pool.held
    del first, view
    assert pool.held == before


def test_a_place_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(AssertionError):
        taken(np.array([1, 2]), np.array([2]))


class Counting(Pool):
    slabs = 0

    def _fresh(self, size: int) -> Any:
        self.slabs += 1
        return super()._fresh(size)


def test_pieces_that_are_not_needed_make_room_for_sizes_that_are() -> None:
    pool = Counting(most=20 << 20)
    many = [pool.take(1 << 20) for _ in range(19)]
    del many
    slabs = []
    for _ in range(1000):
        some = [pool.take(size) for size in (1 << 20, 5 << 19, 3 << 20, 7 << 19)]
        del some
        slabs.append(pool.slabs)
    assert slabs[-1] == slabs[len(slabs) // 2], "no fresh memory any more"
    assert pool.held <= pool.most
