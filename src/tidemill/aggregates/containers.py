"""Partials that are lists, maps and sets of Python: how they are made, combined, copied and written down.

A user's functions may change the state that they are given, as Python's own do: `accumulate`, `subtract`,
`combine` and `inverse` their first argument, `lower` its only one. They return the state. Partials are shared
between windows, so the engine passes copies, unless `freeze` makes partials that never change.

In columns a partial is a JSON text. It holds only what JSON has and what can be told apart in it: tuples,
maps with keys of any scalar, and sets. Nothing else can be read from such a text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain
from typing import Any

from tidemill.aggregates.algebra import Algebra
from tidemill.core.errors import UserError

_SCALARS = (bool, int, float, str, type(None))
_SETS = {"set": set, "frozenset": frozenset}


class Containers:
    """The functions of an algebra on partials that are Python objects; what they raise is a `UserError`."""

    def __init__(self, algebra: Algebra) -> None:
        self._algebra = algebra
        self._shares = algebra.freeze is not None
        """Whether partials may be given to users' functions as they are."""
        self.has_subtract = algebra.subtract is not None
        self._first = self.new()
        self._none = self.identity()

    def new(self) -> Any:
        """Return a state without rows, to which rows can be added."""
        return copied(self._call("identity", self._algebra.identity, ()))

    def identity(self) -> Any:
        """Return the partial of no rows."""
        return self.frozen(self.new())

    def added(self, state: Any, args: tuple[Any, ...]) -> Any:
        """Return a state with a row added; it may be the same object, changed."""
        algebra = self._algebra
        if algebra.accumulate is not None:
            return self._state("accumulate", algebra.accumulate, state, *args)
        lifted = self._call("lift", algebra.lift, *args)
        return self._state("combine", algebra.combine, state, lifted)

    def removed(self, state: Any, args: tuple[Any, ...]) -> Any:
        """Return a state with a row taken out; it may be the same object, changed."""
        assert self._algebra.subtract is not None
        return self._state("subtract", self._algebra.subtract, state, *args)

    def frozen(self, state: Any) -> Any:
        """Return the partial of a state that is not used any more."""
        if self._algebra.freeze is not None:
            state = self._call("freeze", self._algebra.freeze, state)
        self._require_plain(state)
        return state

    def combined(self, a: Any, b: Any, *, ours: bool = False) -> Any:
        """Combine two partials, of which neither changes; `a` may, if nobody else uses it (`ours`)."""
        return self._of_two("combine", self._algebra.combine, a, b, ours)

    def without(self, a: Any, b: Any, *, ours: bool = False) -> Any:
        """Take a partial out of another one."""
        assert self._algebra.inverse is not None
        return self._of_two("inverse", self._algebra.inverse, a, b, ours)

    def _of_two(self, what: str, function: Callable[..., Any], a: Any, b: Any, ours: bool) -> Any:
        if not self._shares:
            a, b = a if ours else copied(a), copied(b)
        found = self._call(what, function, a, b)
        self._check(what, found, self._none)
        return found

    def copy(self, partial: Any) -> Any:
        """Return a partial that a user's function may be given."""
        return partial if self._shares else copied(partial)

    def written(self, partial: Any) -> str:
        """Return a partial as text."""
        return json.dumps(self._plain(partial), separators=(",", ":"))

    def read(self, text: str) -> Any:
        """Return the partial of a text, which may come from anyone."""
        step = f"aggregate {self._algebra.name}"
        try:
            found = _decoded(json.loads(text))
        except (ValueError, TypeError, LookupError, RecursionError) as bad:
            raise UserError(step, expected="a saved partial", got=f"{text!r:.200} ({bad})") from bad
        self._check("a saved partial", found, self._none)
        return found

    def _plain(self, value: Any) -> Any:
        if isinstance(value, _SCALARS):
            return value
        if type(value) is list:
            return [self._plain(v) for v in value]
        if type(value) is tuple:
            return {"tuple": [self._plain(v) for v in value]}
        if type(value) is dict:
            return {"map": [[self._plain(k), self._plain(v)] for k, v in value.items()]}
        self._require_plain(value)
        return {type(value).__name__: sorted((self._plain(v) for v in value), key=json.dumps)}

    def _require_plain(self, value: Any) -> None:
        """Raise an error if a state holds something that cannot be saved: on every engine, saved or not."""
        if isinstance(value, _SCALARS):
            return
        if type(value) not in (list, tuple, dict, set, frozenset):
            raise UserError(
                f"aggregate {self._algebra.name}",
                expected="a state of numbers, text, and lists, tuples, maps and sets of them",
                got=f"a {type(value).__name__}: {value!r:.200}",
            )  # fmt: skip
        for inside in chain.from_iterable(value.items()) if type(value) is dict else value:
            if type(inside) not in _SCALARS:
                self._require_plain(inside)

    def _state(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        found = self._call(what, function, *args)
        self._check(what, found, self._first)
        return found

    def _call(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except Exception as failed:  # the user's function
            raise UserError(
                f"aggregate {self._algebra.name}", f"{what} raised {type(failed).__name__}: {failed}",
                got=f"arguments {', '.join(f'{a!r:.200}' for a in args)}",
            ) from failed  # fmt: skip

    def _check(self, what: str, found: Any, like: Any) -> None:
        """Raise an error if a state has another type than the identity."""
        if type(found) is type(like) or (_is_number(found) and _is_number(like)):
            return
        raise UserError(
            f"aggregate {self._algebra.name}",
            expected=f"{what} to return a {type(like).__name__}, as identity does", got=f"{found!r:.200}",
            hint="return the state after changing it" if found is None else "",
        )  # fmt: skip


def copied(value: Any) -> Any:
    """Return a state that shares nothing that can change with this one.

    >>> state = {"a": [1]}
    >>> copied(state)["a"] is state["a"]
    False
    """
    kind = type(value)
    if kind is list:
        return [v if type(v) in _SCALARS else copied(v) for v in value]
    if kind is dict:
        return {k: v if type(v) in _SCALARS else copied(v) for k, v in value.items()}
    if kind is tuple:
        return tuple(map(copied, value))
    return set(value) if kind is set else value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(v) for v in value]
    if not isinstance(value, dict):
        return value
    [(kind, inside)] = value.items()
    if not isinstance(inside, list):
        raise ValueError(f"{kind} of something else than a list")
    if kind == "map":
        return {_decoded(k): _decoded(v) for k, v in inside}
    found = [_decoded(v) for v in inside]
    return tuple(found) if kind == "tuple" else _SETS[kind](found)
