"""Arrays in files that several processes map: one writes them, others read."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np

from tidemill.core.errors import UserError
from tidemill.core.files import open_plain, our_errors


def create_mapped(path: Path, size: int, *, step: str) -> mmap.mmap:
    """Create a file of zeros, memory-mapped."""
    with our_errors(step, path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            return filled_mapping(descriptor, size)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(descriptor)


def filled_mapping(descriptor: int, size: int) -> mmap.mmap:
    """Fill an empty file with zeros and map it. Blocks are allocated: a full disk is an error here, not a
    crash when memory is written."""
    size = max(8, -(-size // 8) * 8)
    os.posix_fallocate(descriptor, 0, size)
    return mmap.mmap(descriptor, size)


class _Mapped:
    """A read-only file mapping, exposed as a writable array.

    NumPy would mark the array as read-only, and every kernel would be compiled again for that type.
    """

    def __init__(self, memory: mmap.mmap, kind: np.dtype[Any], size: int) -> None:
        self._memory = np.frombuffer(memory, dtype=np.uint8)
        self.__array_interface__ = {
            "shape": (size,), "typestr": kind.str, "descr": kind.descr, "version": 3,
            "data": (self._memory.ctypes.data, False),
        }  # fmt: skip


def map_array(path: Path, kind: np.dtype[Any], size: int, *, step: str, write: bool = False) -> Any:
    """Map `size` values of a file for reading. Raises `FileNotFoundError` if there is none."""
    need = size * kind.itemsize
    descriptor = open_plain(path, os.O_RDWR if write else os.O_RDONLY, step=step)
    with our_errors(step, path):
        try:
            held = os.fstat(descriptor).st_size
            if held < max(8, need):
                raise UserError(step, expected=f"at least {max(8, need)} bytes in {path}", got=str(held))
            memory = mmap.mmap(descriptor, held, prot=mmap.PROT_READ | (mmap.PROT_WRITE if write else 0))
        finally:
            os.close(descriptor)
    return np.asarray(_Mapped(memory, np.dtype("u1"), need)).view(kind)
