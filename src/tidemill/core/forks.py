"""Make forked processes safe: results that the parent began to read, and locks that it held.

A child process has none of its parent's threads and shares the positions of open files with it. The child
therefore cannot continue a result that the parent began to read: it would wait forever or miss rows. Locks
that a thread of the parent held are released in the child.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from tidemill.core.errors import UserError

Item = TypeVar("Item")
_owners: weakref.WeakSet[Any] = weakref.WeakSet()


def in_one_process(items: Iterable[Item], step: str) -> Iterator[Item]:
    """Yield the same items; raise an error if a forked child continues the iteration.

    >>> list(in_one_process([1, 2], "run"))
    [1, 2]
    """
    begun = os.getpid()
    for item in items:
        yield item
        if os.getpid() != begun:
            raise UserError(
                step, expected="the process that started to read a result to continue it",
                got="a process that was forked from it", hint="start the query in the child",
            )  # fmt: skip


def renew_locks(owner: Any) -> None:
    """Call `owner.new_locks()` in every child process that is forked from this one."""
    _owners.add(owner)


def _renew() -> None:
    for owner in list(_owners):
        owner.new_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
