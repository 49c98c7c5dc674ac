"""The result of every `explain`: text in sections, for a terminal, a notebook or a program."""

from __future__ import annotations

import html
from collections.abc import Mapping

from tidemill.core.tables import html_text


class Explanation:
    """Shows how a query will run, and why. A terminal or a notebook displays it; a script prints it.

    `explanation.sections["local"]` is one section, and `text in explanation` searches all sections.

    >>> shown = Explanation({"logical": "source s", "local": "one loop"})
    >>> shown
    == logical ==
    source s
    <BLANKLINE>
    == local ==
    one loop
    >>> "one loop" in shown, shown.sections["logical"]
    (True, 'source s')
    """

    def __init__(self, sections: Mapping[str, str]) -> None:
        self._sections = dict(sections)

    @property
    def sections(self) -> Mapping[str, str]:
        """The sections by title, in order."""
        return self._sections

    def __str__(self) -> str:
        if len(self.sections) == 1:
            return "".join(self.sections.values())
        return "\n\n".join(f"== {title} ==\n{text}" for title, text in self.sections.items())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return "".join(
            f"<details open><summary>{html.escape(title)}</summary>{html_text(text)}</details>"
            for title, text in self.sections.items()
        )

    def __contains__(self, text: str) -> bool:
        return text in str(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Explanation):
            return NotImplemented
        return list(self.sections.items()) == list(other.sections.items())

    __hash__ = None  # type: ignore[assignment]
