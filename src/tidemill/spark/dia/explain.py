"""Describe the plan of a DIA: where functions run, what is shuffled, which order holds."""

from __future__ import annotations

from tidemill.spark.dia.elements import spelled
from tidemill.spark.dia.operation import ARROW, JVM, Operation
from tidemill.spark.exchange.decision import outlook


def stages(last: Operation) -> dict[Operation, int]:
    """The stage of each node: operations without a shuffle between them are one Spark stage.

    A node that is read before and after a shuffle, as in `dia.concat(dia.sort())`, belongs to the first
    stage.
    """
    leader: dict[Operation, Operation] = {}
    depth: dict[Operation, int] = {}
    """The number of shuffles above a node: all nodes of a stage have the same depth, so it has no cycles."""

    def find(node: Operation) -> Operation:
        while leader[node] is not node:
            node = leader[node]
        return node

    for node in last.walk():
        leader[node] = node
        above = max((depth[p] for p in node.parents), default=-1 if node.moves else 0)
        depth[node] = above + (1 if node.moves else 0)
        for parent in node.parents:
            if depth[parent] == depth[node]:
                leader[find(parent)] = find(node)
    numbers: dict[Operation, int] = {}
    return {node: numbers.setdefault(find(node), len(numbers) + 1) for node in leader}


def where(node: Operation) -> str:
    """Where the functions of a node run."""
    if node.runs == JVM:
        pattern = f", a pattern by RE2 in Arrow batches, as {node.why}" if node.why else ""
        return "in the JVM" + (f" (traced{pattern})" if node.parents and node.function else "")
    if node.runs == ARROW:
        return "in Arrow batches" + (f" (opaque Python: {node.why})" if node.why else "")
    return ""


def order(node: Operation) -> str:
    """Whether the order is kept."""
    if not node.ordered:
        return "order not kept"
    if not node.parents:
        return "in order"
    made = node.op in ("sort", "merge", "reduce_to_index", "group_to_index")
    return "in a new order" if made else "order kept"


def describe(last: Operation) -> str:
    """One line for each operation, by stages, with the shuffles between them.

    >>> from tidemill.core.types import INT64
    >>> source = Operation("generate", (), INT64, None, None, "0 … 9")
    >>> print(describe(Operation("map", (source,), INT64, None, None, "(col.value + 1)")))
    stage 1
      1 generate 0 … 9: int64 — in the JVM; in order
      2 map (col.value + 1) of 1: int64 — in the JVM (traced); order kept
    """
    numbers = {node: i + 1 for i, node in enumerate(last.walk())}
    by_stage: dict[int, list[Operation]] = {}
    for node, stage in stages(last).items():
        by_stage.setdefault(stage, []).append(node)
    lines = []
    for stage, members in sorted(by_stage.items()):
        lines.append(f"stage {stage}")
        for node in members:
            if node.moves:
                plan = f"; {outlook(node.session, node.detect)}" if node.detect else ""
                lines.append(f"  <- shuffle: {node.moves}{plan}")
            lines.append(f"  {numbers[node]} {_line(node, numbers)}")
    return "\n".join(lines)


def _line(node: Operation, numbers: dict[Operation, int]) -> str:
    parents = ", ".join(str(numbers[p]) for p in node.parents)
    function = f" {node.function}" if node.function else ""
    made_of = f" of {parents}" if parents else ""
    facts = "; ".join(f for f in (where(node), order(node)) if f)
    return f"{node.op}{function}{made_of}: {spelled(node.kind)} — {facts}"
