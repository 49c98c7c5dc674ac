"""Draw the data-flow graph (section 3.3.5) as Graphviz text and as SVG.

A box is a Spark stage. Inside it, thick lines join chained operations; dashed lines between boxes are
shuffles, labeled with what they send.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from html import escape
from pathlib import Path

from tidemill.core.files import appearing
from tidemill.spark.dia.elements import spelled
from tidemill.spark.dia.explain import order, stages
from tidemill.spark.dia.operation import ARROW, JVM, Operation

_FILL = {JVM: "#dbe9f6", ARROW: "#fde2c4"}
_PLAIN = "#eeeeee"
_WIDE, _HIGH, _GAP, _PAD = 250, 46, 26, 16


@dataclass(frozen=True)
class Graph:
    """A graph that can be shown: `dot` for Graphviz, `svg` for a browser or a notebook."""

    dot: str
    svg: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a `.dot` (or `.gv`) or an `.svg` file."""
        text = self.dot if str(path).endswith((".dot", ".gv")) else self.svg
        with appearing(Path(path), step="save graph") as file:
            file.write(text.encode())

    def _repr_svg_(self) -> str:
        return self.svg


def graph_of(last: Operation) -> Graph:
    """The graph of a DIA and all its ancestors."""
    nodes = list(last.walk())
    return Graph(_dot(nodes, stages(last)), _svg(nodes, stages(last)))


def _label(node: Operation) -> tuple[str, str, str]:
    return node.op, _short(node.function, 40), f"{_short(spelled(node.kind), 24)} · {order(node)}"


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


# --- Graphviz -------------------------------------------------------------------------------------


def _dot(nodes: list[Operation], stage: dict[Operation, int]) -> str:
    number = {node: i for i, node in enumerate(nodes)}
    lines = [
        "digraph dia {",
        "  rankdir=TB; compound=true;",
        '  node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=10];',
        '  edge [fontname="sans-serif", fontsize=9];',
    ]
    for s in sorted(set(stage.values())):
        lines += [
            f"  subgraph cluster_{s} {{",
            f'    label="stage {s}"; style=rounded; color=gray;',
        ]
        for node in (n for n in nodes if stage[n] == s):
            text = "\\n".join(_quoted(part) for part in _label(node) if part)
            fill = _FILL.get(node.runs, _PLAIN)
            lines.append(f'    n{number[node]} [label="{text}", fillcolor="{fill}"];')
        lines.append("  }")
    for node in nodes:
        for parent in node.parents:
            style = f'style=dashed, label="{_quoted(node.moves)}"' if node.moves else "penwidth=2.5"
            lines.append(f"  n{number[parent]} -> n{number[node]} [{style}];")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


# --- SVG ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Box:
    x: float
    y: float
    wide: float
    high: float


def _svg(nodes: list[Operation], stage: dict[Operation, int]) -> str:
    boxes, at = _placed(nodes, stage)
    wide = max(b.x + b.wide for b in boxes.values()) + _PAD
    high = max(b.y + b.high for b in boxes.values()) + _PAD
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:g}" height="{high:g}" '
        'font-family="sans-serif" font-size="11">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>',
    ]
    for number, box in boxes.items():
        parts.append(_rectangle(box, "none", "#aaa", 10))
        parts.append(_text(box.x + 8, box.y + 13, f"stage {number}", "#777"))
    parts += [_edge(at[parent], at[n], n) for n in nodes for parent in n.parents]
    for node in nodes:
        box = at[node]
        parts.append(_rectangle(box, _FILL.get(node.runs, _PLAIN), "#555", 5))
        name, function, facts = _label(node)
        parts.append(_text(box.x + 8, box.y + 14, name, "#000", "bold"))
        parts.append(_text(box.x + 8, box.y + 27, function, "#333"))
        parts.append(_text(box.x + 8, box.y + 40, facts, "#777"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _placed(
    nodes: list[Operation], stage: dict[Operation, int]
) -> tuple[dict[int, _Box], dict[Operation, _Box]]:
    """Lay out a box for each stage below the stages it reads from, with its operations in rows."""
    row: dict[Operation, int] = {}
    for node in nodes:
        inside = [row[p] for p in node.parents if stage[p] == stage[node]]
        row[node] = max(inside, default=-1) + 1
    level: dict[int, int] = {}
    for node in nodes:  # parents first, so that a stage is deeper than those it reads from
        above = [level[stage[p]] + 1 for p in node.parents if stage[p] != stage[node]]
        level[stage[node]] = max([level.get(stage[node], 0), *above])
    boxes: dict[int, _Box] = {}
    at: dict[Operation, _Box] = {}
    y = float(_PAD)
    for depth in sorted(set(level.values())):
        x, tallest = float(_PAD), 0.0
        for number in sorted(s for s, d in level.items() if d == depth):
            members = [n for n in nodes if stage[n] == number]
            columns: dict[int, int] = {}
            for node in members:
                column = columns.get(row[node], 0)
                columns[row[node]] = column + 1
                left = x + _PAD + column * (_WIDE + _GAP)
                at[node] = _Box(left, y + _PAD + 6 + row[node] * (_HIGH + _GAP), _WIDE, _HIGH)
            across, down = max(columns.values()), len(columns)
            wide = across * (_WIDE + _GAP) - _GAP + 2 * _PAD
            high = down * (_HIGH + _GAP) - _GAP + 2 * _PAD + 6
            boxes[number] = _Box(x, y, wide, high)
            x, tallest = x + wide + _GAP, max(tallest, high)
        y += tallest + 2 * _GAP
    return boxes, at


def _edge(start: _Box, end: _Box, node: Operation) -> str:
    x0, y0 = start.x + start.wide / 2, start.y + start.high
    x1, y1 = end.x + end.wide / 2, end.y
    middle = (y0 + y1) / 2
    style = 'stroke-dasharray="5 4"' if node.moves else 'stroke-width="2.5"'
    path = f"M{x0:g} {y0:g}C{x0:g} {middle:g} {x1:g} {middle:g} {x1:g} {y1:g}"
    drawn = f'<path d="{path}" fill="none" stroke="#555" {style} marker-end="url(#tip)"/>'
    return drawn + (_text((x0 + x1) / 2 + 6, middle, node.moves, "#777") if node.moves else "")


def _rectangle(box: _Box, fill: str, stroke: str, round_: int) -> str:
    return (
        f'<rect x="{box.x:g}" y="{box.y:g}" width="{box.wide:g}" height="{box.high:g}" '
        f'rx="{round_}" fill="{fill}" stroke="{stroke}"/>'
    )


def _text(x: float, y: float, text: str, fill: str, weight: str = "normal") -> str:
    shown = escape(text)
    return f'<text x="{x:g}" y="{y:g}" fill="{fill}" font-weight="{weight}">{shown}</text>'
