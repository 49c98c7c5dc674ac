"""A finger B-tree of partial sums, after FiBA (reference 39 of paper 001), in plain Python.

Every node holds the sums of its children, so a range is the sum of a few slices of lists. Inserts start
at the last leaf, the *right finger*, and climb only as far as they are out of order. To keep that
cheap, a node does not hold the sum of its last child if it lies on the right spine: no insert has to go
up to the root, and queries go down the spine instead.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class _Node:
    """A leaf, whose keys have values; or children, each with the least key that may be below it."""

    __slots__ = ("children", "keys", "parent", "sums")

    def __init__(self, keys: list[int], sums: list[int], children: list[_Node] | None = None) -> None:
        self.keys, self.sums, self.children = keys, sums, children
        self.parent: _Node | None = None
        for child in children or ():
            child.parent = self


class SumTree:
    """Sums by key. O(log d) to add at distance d from the greatest key, O(log n) to ask or evict.

    >>> tree = SumTree()
    >>> for key in (1, 5, 3, 5):
    ...     tree.add(key, 10)
    >>> tree.sum(2, 6), tree.sum(6, 9)
    (30, None)
    """

    def __init__(self, arity: int = 32) -> None:
        if arity < 4:
            raise ValueError(f"an arity of 4 at least, not {arity}")
        self._arity = arity
        self._root = self._finger = _Node([], [])

    def add(self, key: int, value: int) -> None:
        """Add to the sum of a key, new or not."""
        node = self._finger
        while node.parent is not None and key < node.keys[0]:
            node = node.parent
        spine = True
        while node.children is not None:
            at = max(bisect_right(node.keys, key) - 1, 0)
            node.keys[0] = min(node.keys[0], key)
            spine = spine and at == len(node.keys) - 1
            if not spine:
                node.sums[at] += value
            node = node.children[at]
        at = bisect_left(node.keys, key)
        if at < len(node.keys) and node.keys[at] == key:
            node.sums[at] += value
            return
        node.keys.insert(at, key)
        node.sums.insert(at, value)
        while len(node.keys) > self._arity:
            node = self._split(node)

    def sum(self, start: int, end: int) -> int | None:
        """The sum of keys in `[start, end)`; None if there are none."""
        node = self._root
        while node.children is not None:
            first = max(bisect_right(node.keys, start) - 1, 0)
            last = bisect_left(node.keys, end) - 1
            if last < first:
                return None
            if last > first:
                return self._between(node, first, last, start, end)
            node = node.children[first]
        low, high = bisect_left(node.keys, start), bisect_left(node.keys, end)
        return sum(node.sums[low:high]) if low < high else None

    def evict(self, until: int) -> None:
        """Forget all keys below one, whole subtrees at a time."""
        node = self._root
        while node.children is not None:
            below = max(bisect_right(node.keys, until) - 1, 0)
            del node.keys[:below], node.sums[:below], node.children[:below]
            node = node.children[0]
        below = bisect_left(node.keys, until)
        del node.keys[:below], node.sums[:below]
        self._mend_left(node)

    def _split(self, node: _Node) -> _Node:
        """Cut a node in half; its parent, which has a child more."""
        half = len(node.keys) // 2
        rest = node.children[half:] if node.children is not None else None
        right = _Node(node.keys[half:], node.sums[half:], rest)
        del node.keys[half:], node.sums[half:]
        if node.children is not None:
            del node.children[half:]
        parent = node.parent
        if parent is None:
            parent = self._root = _Node([node.keys[0]], [0], [node])
        assert parent.children is not None
        at = bisect_right(parent.keys, node.keys[0]) - 1
        on_spine = at == len(parent.keys) - 1 and self._on_spine(parent)
        parent.keys.insert(at + 1, right.keys[0])
        parent.children.insert(at + 1, right)
        parent.sums[at] = sum(node.sums)
        parent.sums.insert(at + 1, 0 if on_spine else sum(right.sums))
        right.parent = parent
        if node is self._finger:
            self._finger = right
        return parent

    def _on_spine(self, node: _Node) -> bool:
        while node.parent is not None:
            assert node.parent.children is not None
            if node.parent.children[-1] is not node:
                return False
            node = node.parent
        return True

    def _between(self, node: _Node, first: int, last: int, start: int, end: int) -> int | None:
        """Where a range begins below one child and ends below another."""
        assert node.children is not None
        left, right = node.children[first], node.children[last]
        total, some = sum(node.sums[first + 1 : last]), last > first + 1
        while left.children is not None:
            at = max(bisect_right(left.keys, start) - 1, 0)
            total += sum(left.sums[at + 1 :])
            some = some or at + 1 < len(left.keys)
            left = left.children[at]
        at = bisect_left(left.keys, start)
        total += sum(left.sums[at:])
        some = some or at < len(left.keys)
        while right.children is not None:
            at = max(bisect_left(right.keys, end) - 1, 0)
            total += sum(right.sums[:at])
            some = some or at > 0
            right = right.children[at]
        at = bisect_left(right.keys, end)
        total += sum(right.sums[:at])
        return total if some or at > 0 else None

    def _mend_left(self, node: _Node) -> None:
        """After keys went from the first leaf: no empty nodes, sums up to the root, no idle root."""
        while (parent := node.parent) is not None:
            assert parent.children is not None
            if not node.keys:
                del parent.keys[0], parent.sums[0], parent.children[0]
            elif not self._on_spine(node):
                parent.sums[0] = sum(node.sums)
            node = parent
        while self._root.children is not None and len(self._root.children) == 1:
            [self._root] = self._root.children
            self._root.parent = None
        if not self._root.keys:
            self._root = self._finger = _Node([], [])
