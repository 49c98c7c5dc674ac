"""Actions: what starts a computation and gives its result to the driver (Table 3.4)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidemill.spark.dia.elements import decode
from tidemill.spark.dia.failures import told
from tidemill.spark.dia.node import Node


def size(node: Node) -> int:
    """How many elements there are."""
    with told("size"):
        return int(node.frame.count())


def to_arrow(node: Node, *, step: str = "to_arrow") -> pa.Table:
    """All elements as a table, in order."""
    with told(step):
        return node.frame.toArrow()


def all_gather(node: Node) -> list[Any]:
    """All elements as a list, in order."""
    return decode(to_arrow(node, step="all_gather"), node.kind)
