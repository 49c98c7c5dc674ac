"""Frozen trees: children, walk, rebuild."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.core.tree import Tree


class Shape(Tree):
    __slots__ = ()


Shape.family = Shape


@dataclass(frozen=True)
class Leaf(Shape):
    n: int


@dataclass(frozen=True)
class Pair(Shape):
    left: Shape
    rest: tuple[Shape, ...]
    label: str = ""


TREE = Pair(Leaf(1), (Leaf(2), Pair(Leaf(3), ())), "top")


def test_walk_gives_parents_first() -> None:
    assert [n.n for n in TREE.walk() if isinstance(n, Leaf)] == [1, 2, 3]
    assert next(iter(TREE.walk())) is TREE


def test_transform_builds_from_the_leaves_and_edits_nothing() -> None:
    def double(node: Shape) -> Shape:
        return Leaf(node.n * 2) if isinstance(node, Leaf) else node

    assert TREE.transform(double) == Pair(Leaf(2), (Leaf(4), Pair(Leaf(6), ())), "top")
    assert TREE.left == Leaf(1)


def test_what_does_not_change_is_the_same_object() -> None:
    assert TREE.transform(lambda node: node) is TREE
