"""Numba's cache of machine code, made safe for several processes at once.

Numba names a data file by what its index knows, and writes the index first. Two processes that
compile one function for different types at the same time can so end up with each other's code, and
one that reads between the two writes with that of an older version. Spark's workers do just that.
Here data comes before its index, and both are written under a lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile

try:
    import fcntl
except ImportError:  # not a Unix: there is no Spark with several workers here either
    fcntl = None  # type: ignore[assignment]


class _Files(IndexDataCacheFile):
    def save(self, key: Any, data: Any) -> None:
        with self._locked(exclusively=True):
            index = self._load_index()
            taken = set(index.values())
            numbers = range(1, len(taken) + 2)
            name = index.get(key) or next(
                n for n in map(self._data_name, numbers) if n not in taken
            )
            self._save_data(name, data)
            self._save_index({**index, key: name})

    def load(self, key: Any) -> Any:
        with self._locked(exclusively=False):
            return super().load(key)

    @contextmanager
    def _locked(self, *, exclusively: bool) -> Iterator[None]:
        if fcntl is None or not os.access(self._cache_path, os.W_OK):
            yield
            return
        with open(os.path.join(self._cache_path, "tidemill.lock"), "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX if exclusively else fcntl.LOCK_SH)
            yield


class _SafeCache(FunctionCache):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, stamp)


def keep_on_disk(compiled: Any) -> Any:
    """Give a compiled function this cache, in place of Numba's `cache=True`.

    Where nothing can be written, as on some clusters, it is compiled again in each process.
    """
    try:
        compiled._cache = _SafeCache(compiled.py_func)
    except RuntimeError as no_place:
        if "no locator available" not in str(no_place):
            raise
    return compiled
