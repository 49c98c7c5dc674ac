"""Frozen trees, the common base of expressions and plans.

A node is a frozen dataclass. Its children are the fields that hold nodes, or tuples of nodes, in
order of declaration. Rules build new nodes and never change existing ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar

N = TypeVar("N", bound="Tree")
R = TypeVar("R")


class Tree:
    """The base class of frozen nodes: children, traversal, rebuilding.

    Only fields of the node's own family are children. The predicate of a plan node is an expression, so it
    is not a child of the plan node.
    """

    __slots__ = ()
    family: ClassVar[type]

    def children(self: N) -> tuple[N, ...]:
        known: tuple[N, ...] | None = self.__dict__.get("_children")  # a node never changes
        if known is not None:
            return known
        found: list[Any] = []
        for value in _field_values(self):
            if isinstance(value, self.family):
                found.append(value)
            elif isinstance(value, tuple):
                found.extend(v for v in value if isinstance(v, self.family))
        known = tuple(found)
        object.__setattr__(self, "_children", known)
        return known

    def __getstate__(self) -> dict[str, Any]:
        """What is known of a node besides its fields is not pickled: another process finds it out again."""
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_")}

    def walk(self: N) -> Iterator[N]:
        """Yield this node and every node below it once, each after the first parent that refers to it.

        A node may occur in a tree many times: repeating `x = x + x` doubles the number of paths each time.
        """
        waiting, seen = [self], set()
        while waiting:
            node = waiting.pop()
            if id(node) not in seen:
                seen.add(id(node))
                yield node
                waiting.extend(reversed(node.children()))

    def fold(
        self: N, combine: Callable[[N, list[R]], R], leaf: Callable[[N], R | None] = lambda node: None
    ) -> R:
        """Compute a value for each node from the values of its children, unless `leaf` returns its value.

        It does not recurse, because trees may be deeper than Python's recursion limit.
        """
        found: dict[int, Any] = {}
        waiting: list[tuple[N, bool]] = [(self, False)]
        while waiting:
            node, ready = waiting.pop()
            if id(node) in found:
                continue
            if ready:
                found[id(node)] = combine(node, [found[id(c)] for c in node.children()])
                continue
            value = leaf(node)
            if value is not None:
                found[id(node)] = value
                continue
            waiting.append((node, True))
            waiting.extend((c, False) for c in reversed(node.children()))
        return found[id(self)]  # type: ignore[no-any-return]

    def upward(self: N) -> list[N]:
        """Return every node once, children before their parents."""
        found: list[N] = []
        self.fold(lambda node, _: found.append(node))
        return found

    def with_children(self: N, children: list[N]) -> N:
        """Return the node with other children; the node itself if they are its own."""
        coming = iter(children)
        return self.map_children(lambda _: next(coming))

    def map_children(self: N, change: Callable[[N], N]) -> N:
        """Return the node with `change` applied to every child; the node itself if nothing changed."""
        updates: dict[str, Any] = {}
        for name in _field_names(type(self)):
            value: Any = getattr(self, name)
            new: Any = value
            if isinstance(value, self.family):
                new = change(value)  # type: ignore[arg-type]
            elif isinstance(value, tuple) and any(isinstance(v, self.family) for v in value):
                new = tuple(change(v) if isinstance(v, self.family) else v for v in value)  # type: ignore[arg-type]
            if not _is_same(new, value):
                updates[name] = new
        return dataclasses.replace(self, **updates) if updates else self  # type: ignore[type-var]

    def transform(self: N, change: Callable[[N], N]) -> N:
        """Rebuild the tree from the leaves up, with `change` applied to every node."""
        return self.fold(lambda node, children: change(node.with_children(children)))


def _is_same(new: Any, value: Any) -> bool:
    # By identity: the time to compare trees by value grows with the number of paths through them.
    if isinstance(value, tuple):
        return len(new) == len(value) and all(a is b for a, b in zip(new, value))
    return new is value


def _field_values(node: Any) -> Iterator[Any]:
    for name in _field_names(type(node)):
        yield getattr(node, name)


_names: dict[Any, tuple[str, ...]] = {}


def _field_names(kind: Any) -> tuple[str, ...]:
    found = _names.get(kind)
    if found is None:
        found = _names[kind] = tuple(field.name for field in dataclasses.fields(kind))
    return found
