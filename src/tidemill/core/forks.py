"""What a forked process may do with results that its parent began to read.

A child has none of its parent's threads, and shares the position of open files with it. A result that the
parent began to read is therefore refused in the child: reading on would wait for ever or miss rows. Locks
that a thread of the parent held are free in the child.
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
    """The same items. A process that was forked meanwhile is refused.

    >>> list(in_one_process([1, 2], "run"))
    [1, 2]
    """
    begun = os.getpid()
    for item in items:
        yield item
        if os.getpid() != begun:
            raise UserError(
                step, expected="the process that began to read a result to go on with it",
                got="one that was forked from it", hint="begin the query in the child",
            )  # fmt: skip


def renew_locks(owner: Any) -> None:
    """Have `owner.new_locks()` called in processes that are forked from this one."""
    _owners.add(owner)


def _renew() -> None:
    for owner in list(_owners):
        owner.new_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
