"""Numba's cache of machine code, made safe for concurrent processes and against incomplete files.

Numba chooses the name of a data file from its index, and writes the index first. Two processes that compile
one function for different types at the same time can then load each other's code. A process that reads
between the two writes can load the code of an older version. Both happen with Spark's workers. This cache
writes the data before the index, and both under a lock.

The files are pickles. They are therefore read only from a directory that `cache_directory` has checked, only
if they belong to this user, and only if they are unchanged: each starts with the hash of the rest. Any other
file is deleted, and the kernel is compiled again.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
import pickle
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile

from tidemill.core.errors import UserError
from tidemill.core.files import appearing
from tidemill.jit.cache_directory import cache_directory
from tidemill.jit.sources import GENERATED, source_hash

try:
    import fcntl
except ImportError:  # not Unix: Spark does not run several workers there either
    fcntl = None  # type: ignore[assignment]

_OF_ANOTHER_VERSION = pickle.PickleError, AttributeError, ImportError, LookupError, TypeError, ValueError
"""The errors of reading a pickle that another version of its classes wrote."""
_DIGEST = hashlib.sha256().digest_size


class _Files(IndexDataCacheFile):
    def save(self, key: Any, data: Any) -> None:
        # If writing fails, the kernel is compiled again next time.
        with contextlib.suppress(OSError, UserError), self._locked(exclusively=True):
            index = self._load_index()
            taken = set(index.values())
            numbers = range(1, len(taken) + 2)
            name = index.get(key) or next(
                n for n in map(self._data_name, numbers) if n not in taken
            )
            self._save_data(name, data)
            self._save_index({**index, key: name})

    def load(self, key: Any) -> Any:
        with contextlib.suppress(OSError), self._locked(exclusively=False):
            name = self._load_index().get(key)
            return None if name is None else self._load_data(name)

    def _load_index(self) -> dict[Any, str]:
        found = _read(self._index_path)
        if found is None:
            return {}
        version, stamp, index = found
        return index if (version, stamp) == (self._version, self._source_stamp) else {}

    def _save_index(self, index: dict[Any, str]) -> None:
        self._write(self._index_path, (self._version, self._source_stamp, index))

    def _load_data(self, name: str) -> Any:
        return _read(self._data_path(name))

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), data)

    def _write(self, path: str, content: Any) -> None:
        body = self._dump(content)
        with appearing(Path(path), step="kernel cache", durable=False) as file:
            file.write(hashlib.sha256(body).digest())
            file.write(body)

    @contextmanager
    def _locked(self, *, exclusively: bool) -> Iterator[None]:
        if fcntl is None or not os.access(self._cache_path, os.W_OK):
            yield
            return
        with open(os.path.join(self._cache_path, "tidemill.lock"), "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX if exclusively else fcntl.LOCK_SH)
            yield


def _read(path: str) -> Any:
    """Return what was written to a file. If the file is damaged, remove it and return None."""
    careful = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        with open(os.open(path, os.O_RDONLY | careful), "rb") as file:
            found = os.fstat(file.fileno())
            mine = not hasattr(os, "getuid") or found.st_uid == os.getuid()
            content = file.read() if mine and stat.S_ISREG(found.st_mode) else b""
    except FileNotFoundError:
        return None
    except OSError:  # e.g. a symlink or a directory
        content = b""
    digest, body = content[:_DIGEST], content[_DIGEST:]
    if hashlib.sha256(body).digest() == digest:
        with contextlib.suppress(*_OF_ANOTHER_VERSION):
            return pickle.loads(body)
    with contextlib.suppress(OSError):
        os.unlink(path)
    return None


class _Place:
    """The location of the cache files of a function; Numba calls this a locator."""

    def __init__(self, function: Callable[..., Any], text: str) -> None:
        # Where a user's function was written is not part of it.
        self._line = 0 if GENERATED in function.__globals__ else function.__code__.co_firstlineno
        self._text = text
        self._py_file = inspect.getfile(function)
        """Numba's messages about code that cannot be cached name this file."""

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Place | None:
        text = function.__globals__.get(GENERATED) or source_hash(file)
        if text is None:
            return None
        # One version of Numba cannot read the pickles of another.
        return cls(function, hashlib.sha256(f"{text} {numba.__version__}".encode()).hexdigest())

    def ensure_cache_path(self) -> None:
        cache_directory()

    def get_cache_path(self) -> str:
        return str(cache_directory())

    def get_source_stamp(self) -> str:
        return self._text

    def get_disambiguator(self) -> str:
        return f"{self._line}-{self._text[:16]}"


class _Kept(CompileResultCacheImpl):
    _locator_classes = [_Place]  # noqa: RUF012  # as Numba has it


class _SafeCache(FunctionCache):
    _impl_class = _Kept

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._impl.locator.ensure_cache_path()
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, stamp)

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """Return the key of a signature.

        Numba's own key has the pickled values that a function closes over. Functions do not give the same
        bytes in every process; those of a user's function are part of its stamp already.
        """
        if GENERATED in self._py_func.__globals__:
            return sig, codegen.magic_tuple()
        return super()._index_key(sig, codegen)


def keep_on_disk(compiled: Any) -> Any:
    """Give a compiled function this cache, in place of Numba's `cache=True`.

    If no directory can be written, as on some clusters, the function is compiled again in each process.
    """
    try:
        compiled._cache = _SafeCache(compiled.py_func)
    except RuntimeError as no_place:
        if "no locator available" not in str(no_place):
            raise
    except (OSError, UserError):
        return compiled
    return compiled
