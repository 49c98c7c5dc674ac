"""Tables for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def html_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as HTML.

    >>> html_table("a < b", ["column"], [["x"]])
    '<table><caption>a &lt; b</caption><tr><th>column</th></tr><tr><td>x</td></tr></table>'
    """

    def line(cells: Sequence[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"

    lines = [line(heads, "th"), *(line(row, "td") for row in rows)]
    return f"<table><caption>{html.escape(caption)}</caption>{''.join(lines)}</table>"


def html_text(text: str) -> str:
    """Return text of several lines as HTML."""
    return f"<pre>{html.escape(text)}</pre>"
